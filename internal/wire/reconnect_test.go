package wire

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

func TestClientBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{ReconnectMin: 20 * time.Millisecond, ReconnectMax: 100 * time.Millisecond}
		conf.Fill(&cfg)
		var waits []time.Duration
		last := time.Now()
		c := newClient(cfg, func(context.Context) (net.Conn, error) {
			waits = append(waits, time.Since(last))
			last = time.Now()
			return nil, errors.New("nobody home")
		})
		time.Sleep(400 * time.Millisecond)
		c.Close()
		want := []time.Duration{0, 20e6, 40e6, 80e6, 100e6, 100e6}
		if !slices.Equal(waits, want) {
			t.Errorf("waited %v, want %v", waits, want)
		}
	})
}

// TestServerHeartbeats: a client hears from an idle engine again and again,
// and reports the newest state.
func TestServerHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}
		conf.Fill(&cfg)
		served := ServerConfig{}
		conf.Fill(&served)
		heard := 0
		cfg.OnState = func(s *State) {
			if s.Err == nil {
				heard++
			}
		}
		engine := parkedEngine{stillEngine{state: &State{Step: 7}}}
		done := make(chan struct{}, 1)
		c := newClient(cfg, func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				serveConnection(context.Background(), there, engine, &served)
				done <- struct{}{}
			}()
			return here, nil
		})
		time.Sleep(10*time.Second + time.Millisecond)
		if err := c.State().Err; err != nil || c.State().Step != 7 {
			t.Errorf("state %+v", *c.State())
		}
		c.Close()
		<-done
		if want := int(10*time.Second/served.HeartbeatInterval) + 2; heard != want {
			t.Errorf("%d states in 10s, want %d", heard, want)
		}
	})
}
