package gateway

import (
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

// Reporter turns the engine's states into what admission learns from them. Its
// zero value has heard nothing. One goroutine calls it, with every state in order.
type Reporter struct {
	heard           uint64 // changes of blocks
	cached, evicted []uint64
}

// Clock is the clock of a Reporter's reports, for admission.NewQueue.
func Clock() time.Duration { return time.Duration(wire.Monotonic()) }

// Report is what s says. Its lists are valid until the next call.
func (r *Reporter) Report(s *wire.State) admission.Report {
	if s.Err != nil {
		r.heard = 0
		return admission.Report{At: time.Duration(s.At), Forgotten: true}
	}
	news, heard, missed := s.BlocksAfter(r.heard)
	r.heard, r.cached, r.evicted = heard, r.cached[:0], r.evicted[:0]
	for _, c := range news {
		if c.Evicted {
			r.evicted = append(r.evicted, c.Hash)
		} else {
			r.cached = append(r.cached, c.Hash)
		}
	}
	took := s.StepDuration
	if s.Running == 0 { // an idle turn still tells of the last step
		took = 0
	}
	return admission.Report{
		Up: true, At: time.Duration(s.At), Cost: s.Cost, StepTokensMax: s.StepTokensMax,
		KVTokens: s.PagesTotal * s.Model.PageTokens, KVUsed: s.PagesUsed * s.Model.PageTokens,
		ShortPrefill: s.ShortPrefill, LongPrefill: s.LongPrefill, Sequences: s.Sequences,
		StepDuration: took, StepPredicted: s.StepPredicted,
		Cached: r.cached, Evicted: r.evicted, Forgotten: missed,
	}
}
