package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

func TestConfigsSayWhatIsOutOfRange(t *testing.T) {
	type validated interface{ Validate() error }
	for words, c := range map[string]validated{
		"socket.frame_bytes_max must be at least 65536, not 1":           &Config{FrameBytesMax: 1},
		"socket.window_events must be at least 1, not -3":                &Config{WindowEvents: -3},
		"socket.dial_timeout":                                            &Config{DialTimeout: -1},
		"engine_socket.frame_bytes_max must be at least 65536, not 1":    &ServerConfig{FrameBytesMax: 1},
		"engine_socket.heartbeat_interval must be in (0s,1s], not 1m0s":  &ServerConfig{HeartbeatInterval: time.Minute},
		"engine_socket.connections_max, sequences_max, prepares_max and": &ServerConfig{SequencesMax: -1},
	} {
		conf.Fill(c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), words) {
			t.Errorf("got %v; want %q", err, words)
		}
	}
	for _, c := range []validated{&Config{}, &ServerConfig{}} {
		conf.Fill(c)
		if err := c.Validate(); err != nil {
			t.Errorf("the defaults of %T are refused: %v", c, err)
		}
	}
}
