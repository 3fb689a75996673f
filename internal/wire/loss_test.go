package wire

import (
	"context"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// deafConn fails every write after the hello, and lets nothing be read after
// the hello until a write has failed.
type deafConn struct {
	net.Conn
	writes, reads int
	failed        chan struct{}
}

func (c *deafConn) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 1 {
		return c.Conn.Write(b)
	}
	close(c.failed)
	return 0, syscall.EPIPE
}

func (c *deafConn) Read(b []byte) (int, error) {
	if c.reads++; c.reads > 1 {
		<-c.failed
		time.Sleep(time.Millisecond)
	}
	return c.Conn.Read(b)
}

// TestClientReadsWhatADeadEngineSaid: a write that fails because the engine
// is gone does not throw away what the engine sent before.
func TestClientReadsWhatADeadEngineSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}
		conf.Fill(&cfg)
		c := newClient(cfg, func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer there.Close()
				readHello(newFrameReader(there, 1<<20))
				there.Write(appendJSONFrame(nil, frameHello, &hello{Protocol: protocolVersion, ClockNs: Monotonic(), State: &State{}}))
				there.Write(steps(Event{Text: "last", TokenCount: 1, Finish: FinishStop}, Event{End: &End{}}))
			}()
			return &deafConn{Conn: here, failed: make(chan struct{})}, nil
		})
		synctest.Wait()
		notify := make(chan struct{}, 1)
		s := c.Generate(&Generation{Prompt: &Prompt{}, Options: Options{N: 1}, Notify: notify})
		time.Sleep(10 * time.Millisecond)
		if got := s.Take(nil); len(got) != 2 || got[0].Text != "last" || got[1].End.Err != nil {
			t.Errorf("got %+v", got)
		}
		s.Close()
		c.Close()
	})
}

// TestServerSendsWhatIsThereBeforeItStops: what the engine put before the
// server's context ended reaches the reader, and the reader hears why it ends.
func TestServerSendsWhatIsThereBeforeItStops(t *testing.T) {
	engine := handEngine{stillEngine{state: new(State)}, make(chan *Stream, 2)}
	client, stop := socketPair(t, engine)
	notify := make(chan struct{}, 1)
	request := &Generation{Prompt: &Prompt{}, Options: Options{N: 1}, Notify: notify}
	done, cut := client.Generate(request), client.Generate(request)
	s := <-engine.streams
	<-engine.streams
	s.Put(Event{Text: "last", TokenCount: 1, Finish: FinishStop})
	s.Put(Event{End: &End{}}) // and no Wake: only the stop makes the server look
	stop()
	var got []Event
	for len(got) == 0 || got[len(got)-1].End == nil {
		<-notify
		got = done.Take(got)
	}
	if len(got) != 2 || got[0].Text != "last" || got[1].End.Err != nil {
		t.Errorf("the one that ended: %+v", got)
	}
	for got = nil; len(got) == 0; got = cut.Take(got) {
		time.Sleep(time.Millisecond)
	}
	if err := got[0].End.Err; err == nil || err.Kind != Unavailable || err.Message != "the engine went away: the engine is stopping" {
		t.Errorf("the one that was cut: %v", err)
	}
}
