package gateway

import (
	"sync/atomic"
	"testing"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// delivering is an engine with a goroutine for each generation, which calls Deliver.
type delivering struct {
	wire.Engine
	change func(*wire.Event) // of what it delivers; nil for nothing
}

func (d delivering) Generate(g *wire.Generation) *wire.Stream {
	inner, notify := *g, make(chan struct{}, 1)
	inner.Notify = notify
	from := d.Engine.Generate(&inner)
	c := &delivery{Stream: from, turn: make(chan struct{}, 1)}
	to := wire.NewStream(8, g.Notify, c)
	go func() {
		for range notify {
			for _, e := range from.Take(nil) {
				if d.change != nil && e.End == nil {
					d.change(&e)
				}
				for !to.Put(e) && e.End == nil && !c.canceled.Load() {
					to.Wake()
					<-c.turn
				}
				if e.End != nil {
					to.Wake()
					return
				}
			}
			if !g.Deliver() {
				to.Wake()
			}
		}
	}()
	return to
}

// delivery is the control of such a generation.
type delivery struct {
	*wire.Stream
	turn     chan struct{} // receives when there is room, or nothing but the End is wanted
	canceled atomic.Bool
}

func (c *delivery) Taken() {
	select {
	case c.turn <- struct{}{}:
	default:
	}
}

func (c *delivery) Cancel() {
	c.canceled.Store(true)
	c.Stream.Cancel()
	c.Taken()
}

// bothWays runs a test with events that wait for the handler's goroutine, and with such
// that their producer delivers.
func bothWays(t *testing.T, test func(t *testing.T, delivers bool)) {
	for name, delivers := range map[string]bool{"waiting": false, "delivered": true} {
		t.Run(name, func(t *testing.T) { test(t, delivers) })
	}
}

// TestAPanicWhileDelivering has a producer whose goroutine is not the request's.
func TestAPanicWhileDelivering(t *testing.T) {
	r := newRig(t, rigConfig{delivers: true, spoil: func(e *wire.Event) { e.Choice = 7 }, fake: scripted(wiretest.Script{Endless: true, Pieces: []string{"x"}})})
	for _, fields := range []string{"", `"stream":true`} {
		r.chat(fields)
		r.settled()
		if rec := r.recorder.Last(1)[0]; rec.Outcome != telemetry.Internal {
			t.Errorf("%q: outcome %v", fields, rec.Outcome)
		}
	}
}
