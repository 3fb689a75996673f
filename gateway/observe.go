package gateway

import (
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// captureHeader with the value 1 asks to keep the request.
const captureHeader = "X-Forebay-Capture"

// observe connects the recorder, the engine and the store of kept requests.
func (g *Gateway) observe() {
	if g.capture == nil {
		return
	}
	g.capture.Watch(g.running)
	if engine, ok := g.engine.(wire.LaunchTracer); ok {
		g.capture.Arm(engine)
	}
	g.recorder.OfferTo(g.capture.Offer)
	g.recorder.ResolveExemplars(g.capture.Has)
	g.recorder.CountCaptures(func() telemetry.CaptureCounts { return captureCounts(g.capture) })
	g.recorder.CountSpans(func() telemetry.SpanCounts {
		s := g.capture.Spans()
		return telemetry.SpanCounts{Exported: s.Exported, Failed: s.Failed, QueueFull: s.QueueFull, Stopped: s.ShutDown, AttributesDropped: s.AttributesDropped, Queued: s.Queued}
	})
}

func captureCounts(s *capture.Store) telemetry.CaptureCounts {
	stats := s.Stats()
	c := telemetry.CaptureCounts{Brief: stats.Brief, DiskBytes: stats.DiskBytes, DiskErrors: stats.DiskErrors}
	to := func(list *[]telemetry.ReasonCount) func(string, uint64) {
		return func(reason string, n uint64) { *list = append(*list, telemetry.ReasonCount{Reason: reason, Count: n}) }
	}
	stats.Each(to(&c.Kept), to(&c.Dropped))
	return c
}

// showInterval is the most that the view of a request lags behind while its
// tokens come.
const showInterval = int64(100 * time.Millisecond)

// show copies the record to the view that others read.
func (x *exchange) show(now int64) {
	x.shown = now
	x.mu.Lock()
	defer x.mu.Unlock()
	x.view = x.record
}

// running returns the records of requests that have not ended, as they were last
// shown.
func (g *Gateway) running() []telemetry.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]telemetry.Record, 0, len(g.live))
	for x := range g.live {
		x.mu.Lock()
		if x.view.Finished == 0 {
			all = append(all, x.view)
		}
		x.mu.Unlock()
	}
	return all
}

// noteClass keeps the class and what it promises.
func (x *exchange) noteClass(class *admission.Class) {
	r := &x.record
	r.Class, r.FirstTokenGoal, r.TokenGoal = class.Name, class.FirstTokenGoal, class.TokenGoal
}
