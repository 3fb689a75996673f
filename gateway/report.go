package gateway

import (
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/wire"
)

// Reporter turns the engine's states into what admission learns from them. Its
// zero value has heard nothing. One goroutine calls it, with every state in order.
type Reporter struct {
	Group  string // whose states these are, as in admission.Groups
	blocks hitmap.Reader
}

// Clock is the clock of a Reporter's reports, for admission.NewQueue.
func Clock() time.Duration { return time.Duration(wire.Monotonic()) }

// Report is what s says. Its news of blocks are shared with s.
func (r *Reporter) Report(s *wire.State) admission.Report {
	if s.Err != nil {
		r.blocks = hitmap.Reader{}
		return admission.Report{Group: r.Group, At: time.Duration(s.At), Blocks: hitmap.News{Missed: true}}
	}
	took := s.StepDuration
	if s.Running == 0 { // an idle turn still tells of the last step
		took = 0
	}
	return admission.Report{
		Group: r.Group, Up: true, At: time.Duration(s.At), Cost: s.Cost,
		Room:     s.Room,
		KVTokens: s.PagesTotal * s.Model.PageTokens, KVPinned: s.PagesPinned * s.Model.PageTokens,
		KVWindowTimes: s.Model.WindowPages, KVWindowTokens: s.Model.WindowTokens,
		ShortPrefill: s.ShortPrefill, LongPrefill: s.LongPrefill, Sequences: s.Sequences, Places: s.Places,
		StepDuration: took, StepPredicted: s.StepPredicted,
		Blocks: r.blocks.Read(&s.Blocks),
	}
}
