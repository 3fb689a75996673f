package wire

import (
	"context"
	"errors"
	"net"
	"os"
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

// TestClientBacksOffFromShortConnections: an engine that greets and then hangs
// up is not asked again and again at the shortest interval.
func TestClientBacksOffFromShortConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{ReconnectMin: 20 * time.Millisecond, ReconnectMax: 100 * time.Millisecond}
		conf.Fill(&cfg)
		var waits []time.Duration
		last := time.Now()
		lasting := []time.Duration{0, 0, 0, 0, time.Second, 0}
		c := newClient(cfg, func(context.Context) (net.Conn, error) {
			waits = append(waits, time.Since(last))
			here, there := net.Pipe()
			lasts := lasting[len(waits)-1]
			last = time.Now().Add(lasts)
			go func() {
				readHello(newFrameReader(there, 1<<20))
				there.Write(appendJSONFrame(nil, frameHello, &hello{Protocol: protocolVersion, ClockNs: Monotonic(), State: &State{}}))
				time.Sleep(lasts)
				there.Close()
			}()
			return here, nil
		})
		time.Sleep(1270 * time.Millisecond)
		c.Close()
		want := []time.Duration{0, 20e6, 40e6, 80e6, 100e6, 20e6}
		if !slices.Equal(waits, want) {
			t.Errorf("waited %v, want %v", waits, want)
		}
	})
}

// lateConn finds its first deadline passed, as after a stop of the process.
type lateConn struct {
	net.Conn
	late *int
}

func (c lateConn) Read(b []byte) (int, error) {
	if *c.late > 0 {
		*c.late--
		return 0, os.ErrDeadlineExceeded
	}
	return copy(b, "x"), nil
}

func (lateConn) SetReadDeadline(time.Time) error { return nil }

func TestSilenceIsLookedForTwice(t *testing.T) {
	late := 1
	if n, err := (patient{lateConn{late: &late}, time.Second}).Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("after a stop of this process: %d bytes, %v", n, err)
	}
	late = 2
	if _, err := (patient{lateConn{late: &late}, time.Second}).Read(make([]byte, 8)); AsError(err).Message != "no sign of life for 1s" {
		t.Errorf("after a true silence: %v", err)
	}
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
