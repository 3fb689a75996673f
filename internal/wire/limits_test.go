package wire

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/conf"
)

// changingEngine is a handEngine whose state and answers the test sets.
type changingEngine struct {
	handEngine
	state  atomic.Pointer[State]
	prompt Prompt
}

func (e *changingEngine) State() *State { return e.state.Load() }

func (e *changingEngine) Prepare(context.Context, *Request) (*Prompt, error) { return &e.prompt, nil }

// inBubble runs test on a fake clock with a client and an engine whose frames
// are as small as they may be. A stream's notify is shared.
func inBubble(t *testing.T, test func(t *testing.T, c *Client, e *changingEngine, g *Generation)) {
	synctest.Test(t, func(t *testing.T) {
		e := &changingEngine{handEngine: handEngine{streams: make(chan *Stream, 1)}}
		e.state.Store(&State{Model: Model{ID: "first"}})
		served := ServerConfig{FrameBytesMax: frameBytesLeast}
		conf.Fill(&served)
		cfg := Config{FrameBytesMax: frameBytesLeast}
		conf.Fill(&cfg)
		done := make(chan struct{})
		c := newClient(cfg, func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				defer close(done)
				serveConnection(context.Background(), there, e, &served)
			}()
			return here, nil
		})
		synctest.Wait()
		test(t, c, e, &Generation{Prompt: &Prompt{}, Options: Options{N: 1}, Notify: make(chan struct{}, 1)})
		c.Close()
		<-done
	})
}

func TestServerCarriesAChangedModel(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, e *changingEngine, _ *Generation) {
		if got := c.State().Model.ID; got != "first" {
			t.Errorf("model %q from the hello", got)
		}
		e.state.Store(&State{Step: 1, Model: Model{ID: "second"}})
		time.Sleep(time.Second)
		if s := c.State(); s.Model.ID != "second" || s.Step != 1 {
			t.Errorf("state %+v", *s)
		}
		c.Close()
		if s := c.State(); s.Model.ID != "second" || s.Err == nil {
			t.Errorf("state once closed %+v", *s)
		}
	})
}

// TestServerSplitsLongSteps: more than a frame holds comes whole and in
// order, without waiting for a heartbeat.
func TestServerSplitsLongSteps(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, e *changingEngine, g *Generation) {
		s := c.Generate(g)
		made := <-e.streams
		for i := range 60 {
			made.Put(Event{TokenCount: i, Text: strings.Repeat("x", 2000)})
		}
		made.Wake()
		synctest.Wait()
		got := s.Take(nil)
		if len(got) != 60 || got[59].TokenCount != 59 {
			t.Errorf("%d events", len(got))
		}
		s.Close()
	})
}

func TestNothingTooLargeEndsTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, e *changingEngine, g *Generation) {
		s := c.Generate(g)
		made := <-e.streams
		made.Put(Event{Text: strings.Repeat("x", frameBytesLeast)})
		made.Wake()
		synctest.Wait()
		if got := s.Take(nil); len(got) != 1 || got[0].End == nil || got[0].End.Err.Kind != TooLarge {
			t.Errorf("a large event: %+v", got)
		}

		long := strings.Repeat("x", frameBytesLeast)
		if _, err := c.Prepare(t.Context(), &Request{Text: &long}); AsError(err).Kind != TooLarge {
			t.Errorf("a large request: %v", err)
		}
		e.prompt.Text = long
		if _, err := c.Prepare(t.Context(), &Request{}); AsError(err).Kind != TooLarge {
			t.Errorf("a large prompt: %v", err)
		}
		large := *g
		large.Prompt = &e.prompt
		if got := c.Generate(&large).Take(nil); len(got) != 1 || got[0].End.Err.Kind != TooLarge {
			t.Errorf("a large dispatch: %+v", got)
		}

		e.state.Store(&State{Step: 5, Blocks: hitmap.Journal{Changes: make([]hitmap.Change, frameBytesLeast)}})
		time.Sleep(time.Second)
		if s := c.State(); s.Err != nil || s.Step != 5 {
			t.Errorf("a state of many blocks: %+v", *s)
		}
	})
}

// TestSessionForgets: a session keeps nothing of sequences and prepares that ended.
func TestSessionForgets(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, e *changingEngine, g *Generation) {
		s := c.Generate(g)
		(<-e.streams).Put(Event{End: &End{}})
		canceled := c.Generate(g)
		<-e.streams
		canceled.Close()
		if _, err := c.Prepare(t.Context(), &Request{}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		c.session.mu.Lock()
		defer c.session.mu.Unlock()
		if live, prepares := len(c.session.sequences), len(c.session.prepares); live+prepares > 0 {
			t.Errorf("%d sequences and %d prepares kept", live, prepares)
		}
		s.Close()
	})
}

// TestSessionRefusesOnceItHasEnded: a caller that took the session just
// before its connection ended is told so.
func TestSessionRefusesOnceItHasEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, _ *changingEngine, g *Generation) {
		s, err := c.current()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got := s.generate(g).Take(nil); len(got) != 1 || got[0].End == nil || got[0].End.Err.Kind != Unavailable {
			t.Errorf("a generation: %+v", got)
		}
		if _, err := s.prepare(t.Context(), &Request{}); AsError(err).Kind != Unavailable {
			t.Errorf("a prepare: %v", err)
		}
	})
}
