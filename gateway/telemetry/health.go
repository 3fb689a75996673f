package telemetry

import "sync/atomic"

// Health counts requests since the start, and how many of them failed for another cause
// than the client's: they were refused by a key, a limit or the queue, or ended by a
// fault. It is what a change of policy may spoil.
type Health struct{ Requests, Failed uint64 }

// health counts a Health.
type health struct{ requests, failed atomic.Uint64 }

func (h *health) observe(rec *Record) {
	if rec.Route == RouteSibling || rec.Route == "probe" {
		return // its client's gateway counts it; it asks for nothing
	}
	h.requests.Add(1)
	switch rec.Outcome {
	case OK, Invalid, NotFound, ContextLength, TooLarge, ClientGone, WriteStall, DeadlineExceeded, GrammarFailed:
	default:
		h.failed.Add(1)
	}
}

// Health reads the counts.
func (r *Recorder) Health() Health { return Health{r.health.requests.Load(), r.health.failed.Load()} }
