package upstream

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream/window"
)

// ledger counts what is at the server, from what was sent there and what came back,
// and knows how much should be there.
type ledger struct {
	window  *window.Window
	running int // sequences whose answers are read
	stopped int // sequences that are not read: paused, or their readers are slow
	started int // generations without a first token
	short   int // their prompt tokens, by lane
	long    int
	live    int // generations
	// lingering are the sequences of closed connections that the server may still
	// compute, with the instant from which it does not.
	lingering []lingering
	heard     int64 // when the last event of any answer came
}

type lingering struct {
	sequences int
	until     time.Duration // on the clock of wire.Monotonic
}

// show writes the load into s as of now, and forgets what lingers no more.
func (l *ledger) show(s *wire.State, now time.Duration) {
	s.Running, s.Paused, s.Sequences = l.running, l.stopped, l.running+l.stopped
	s.ShortPrefill, s.LongPrefill = l.short, l.long
	kept, gone := l.lingering[:0], 0
	for _, g := range l.lingering {
		if g.until > now {
			kept = append(kept, g)
			gone += g.sequences
		}
	}
	l.lingering = kept
	s.Places = max(1, l.window.Places()-gone)
	s.Cost.PrefillToken, s.Cost.Base = l.window.Cost()
	s.RatioMedian, s.RatioHigh = 1, 1
	// Admission lets twice the room of a step be under way: what a step computes, and
	// as much again while it runs. The decode rows are taken off the room.
	s.Room.TokensMax = max(1, l.window.Prefill()/2) + s.Sequences
}

// lane adds n prompt tokens to a lane.
func (l *ledger) lane(long bool, n int) {
	if long {
		l.long += n
	} else {
		l.short += n
	}
}
