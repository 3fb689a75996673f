package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

func TestConfigsSayWhatIsOutOfRange(t *testing.T) {
	for words, c := range map[string]any{
		"socket.frame_bytes_max: 1 is out of range; allowed is 64KiB or more":          &Config{FrameBytesMax: 1},
		"socket.window_events: -3 must not be negative":                                &Config{WindowEvents: -3},
		"socket.dial_timeout: -1ns must not be negative":                               &Config{DialTimeout: -1},
		"engine_socket.frame_bytes_max: 65535 is out of range":                         &ServerConfig{FrameBytesMax: frameBytesLeast - 1},
		"engine_socket.heartbeat_interval: 1m is out of range; allowed is 1ms to 1s":   &ServerConfig{HeartbeatInterval: time.Minute},
		"engine_socket.sequences_max: -1 must not be negative\nengine_socket.prepares": &ServerConfig{SequencesMax: -1, PreparesMax: -1},
		"<nil>": &Config{FrameBytesMax: frameBytesLeast},
	} {
		section := "socket"
		if _, ok := c.(*ServerConfig); ok {
			section = "engine_socket"
		}
		if err := conf.Complete(section, c); !strings.HasPrefix(fmt.Sprint(err), words) {
			t.Errorf("got %v; want %q", err, words)
		}
	}
}
