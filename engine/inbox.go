package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// inbox is the only way into the loop: new generations, and those whose reader
// paused, resumed, cancelled or made room. Both lists are bounded: the first by
// the limits below, the second by the generations alive, since each is in it at
// most once.
type inbox struct {
	wake chan struct{} // capacity 1: there is something to take

	waitingMax     int
	generationsMax int

	// urgent says that an arrival of level 0 has not been taken yet.
	urgent atomic.Bool
	// launchTrace is the one that is asked for or runs, or nil; the loop removes it.
	launchTrace atomic.Pointer[launchTrace]
	holdings    holdings

	mu       sync.Mutex
	arrivals []*generation
	touched  []*generation
	ranks    uint64      // given to sequences so far, oldest first
	live     int         // generations that have neither ended nor been cancelled
	waiting  int         // live ones that have not started
	refuse   *wire.Error // set once nothing new is taken
	closing  bool
	empty    chan struct{} // closed when the inbox refuses and none is live
}

func newInbox(c *Config) *inbox {
	return &inbox{
		wake:           make(chan struct{}, 1),
		waitingMax:     c.WaitingMax,
		generationsMax: c.GenerationsMax,
		empty:          make(chan struct{}),
		holdings:       holdings{asked: make(chan *holdingsAsk, 1)},
	}
}

func errClosed() *wire.Error {
	return &wire.Error{Kind: wire.Unavailable, Message: "the engine is closed; try again", RetryAfter: time.Second}
}

func errDraining() *wire.Error {
	return &wire.Error{Kind: wire.Draining, Message: "the engine is stopping and takes nothing new; try again", RetryAfter: time.Second}
}

func errOverloaded(format string, limit int) *wire.Error {
	err := wire.Errorf(wire.Overloaded, format, limit)
	err.RetryAfter = time.Second
	return err
}

// post hands a new generation to the loop, or says why it is refused.
func (in *inbox) post(g *generation) *wire.Error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.refuse != nil:
		return in.refuse
	case in.waiting >= in.waitingMax:
		return errOverloaded("the engine already has the most waiting generations allowed, %d; try again, or raise engine.waiting_max", in.waitingMax)
	case in.live >= in.generationsMax:
		return errOverloaded("the engine already has the most generations allowed, %d; try again, or raise engine.generations_max", in.generationsMax)
	}
	for _, s := range g.choices {
		in.ranks++
		s.rank = in.ranks
	}
	in.live++
	in.waiting++
	in.arrivals = append(in.arrivals, g)
	if g.posted = true; g.pauseWanted.Load() || g.cancelWanted.Load() {
		g.touched = true
		in.touched = append(in.touched, g)
	}
	if g.level == 0 {
		in.urgent.Store(true)
	}
	in.kick()
	return nil
}

// touch tells the loop to look at g. Before post it does nothing: post looks itself.
func (in *inbox) touch(g *generation) {
	in.mu.Lock()
	if g.posted && !g.touched {
		g.touched = true
		in.touched = append(in.touched, g)
	}
	in.mu.Unlock()
	in.kick()
}

func (in *inbox) kick() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// take appends everything to the caller's slices, and empties the inbox.
func (in *inbox) take(arrivals, touched []*generation) (_, _ []*generation, closing bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.urgent.Store(false)
	arrivals = append(arrivals, in.arrivals...)
	touched = append(touched, in.touched...)
	clear(in.arrivals)
	clear(in.touched)
	in.arrivals, in.touched = in.arrivals[:0], in.touched[:0]
	for _, g := range touched {
		g.touched = false
	}
	return arrivals, touched, in.closing
}

// started says that a generation no longer waits.
func (in *inbox) started() {
	in.mu.Lock()
	in.waiting--
	in.mu.Unlock()
}

// ended says that a generation is gone.
func (in *inbox) ended(wasWaiting bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.live--
	if wasWaiting {
		in.waiting--
	}
	in.checkEmpty()
}

// shut refuses everything new with err; close also tells the loop to end.
func (in *inbox) shut(err *wire.Error, closing bool) {
	in.mu.Lock()
	if in.refuse == nil {
		in.refuse = err
		in.checkEmpty()
	}
	if closing {
		in.refuse, in.closing = err, true
	}
	in.mu.Unlock()
	in.kick()
}

func (in *inbox) checkEmpty() {
	if in.refuse == nil || in.live > 0 {
		return
	}
	select {
	case <-in.empty:
	default:
		close(in.empty)
	}
}

// refusal is why nothing new is taken, or nil.
func (in *inbox) refusal() *wire.Error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.refuse
}
