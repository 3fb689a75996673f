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
	since     int64 // when nothing was read last, and then something was
}

type lingering struct {
	sequences int
	until     time.Duration // on the clock of wire.Monotonic
}

// leaving is how many sequences may still run there although nobody reads them.
func (l *ledger) leaving(now time.Duration) (n int) {
	kept := l.lingering[:0]
	for _, g := range l.lingering {
		if g.until > now {
			kept = append(kept, g)
			n += g.sequences
		}
	}
	l.lingering = kept
	return n
}

// wakes notes when answers begin to be read after none were.
func (l *ledger) wakes() {
	if l.running == 0 {
		l.since = wire.Monotonic()
	}
}

// lane adds n prompt tokens to a lane.
func (l *ledger) lane(long bool, n int) {
	if long {
		l.long += n
	} else {
		l.short += n
	}
}
