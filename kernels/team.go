package kernels

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// How long a waiting worker stays awake: spinRounds times it checks spinLoads times for
// work, with a pause in between, and then lets other goroutines run. That covers the
// serial sections between the parallel ones of a step; a longer idle time costs a wake-up.
const (
	spinLoads  = 16
	spinRounds = 100
)

// Team is a fixed group of workers that run one function together. The caller
// of Run is worker 0; the others are goroutines that belong to the Team until
// Close. Waiting is spin, then park. A Team serves one Run at a time.
type Team struct {
	rounds  int // of spinning; fixed at construction
	members []member
	ended   sync.WaitGroup

	// Written by Run before it moves epoch, read by the workers after they see it move.
	fn      func(worker int)
	closing bool

	epoch   atomic.Uint32 // one more for each Run
	pending atomic.Int32  // workers that have not ended the current Run
	caller  gate          // the caller, waiting for pending to reach 0
	failure atomic.Pointer[error]
}

// member is a worker other than the caller, on its own cache line.
type member struct {
	gate gate
	_    [64]byte
}

// NewTeam starts workers−1 goroutines; workers is at least 1.
func NewTeam(workers int) *Team {
	if workers < 1 {
		panic(fmt.Sprintf("kernels: NewTeam(%d): a team has at least one worker", workers))
	}
	t := &Team{rounds: spinRounds, members: make([]member, workers-1)}
	if runtime.GOMAXPROCS(0) < workers {
		t.rounds = 1 // a spinning worker would take the processor from the one it waits for
	}
	t.caller.init()
	for i := range t.members {
		t.members[i].gate.init()
		t.ended.Go(func() { t.work(i + 1) })
	}
	return t
}

// Workers is the number of workers, the caller included.
func (t *Team) Workers() int { return len(t.members) + 1 }

// Run runs fn once on every worker and returns when all have ended. It allocates
// nothing. A panic of fn is raised in the caller after all have ended; fn must
// not end its goroutine otherwise.
func (t *Team) Run(fn func(worker int)) {
	t.start(fn)
	defer t.finish() // also when fn panics here: others may still use its data
	fn(0)
}

// start hands fn to the other workers.
func (t *Team) start(fn func(worker int)) {
	t.fn = fn
	t.pending.Store(int32(len(t.members)))
	t.epoch.Add(1)
	for i := range t.members {
		t.members[i].gate.open()
	}
}

// finish waits for the other workers and raises their first panic.
func (t *Team) finish() {
	t.caller.wait(t.rounds, func() bool { return t.pending.Load() == 0 })
	t.fn = nil
	if err := t.failure.Swap(nil); err != nil {
		panic(*err)
	}
}

// Close ends the workers and waits for them. The Team must not be running.
func (t *Team) Close() {
	t.closing = true
	t.epoch.Add(1)
	for i := range t.members {
		t.members[i].gate.open()
	}
	t.ended.Wait()
}

// work is the loop of one worker.
func (t *Team) work(worker int) {
	g := &t.members[worker-1].gate
	for seen := uint32(0); ; seen++ {
		g.wait(t.rounds, func() bool { return t.epoch.Load() != seen })
		if t.closing {
			return
		}
		t.runOne(worker)
		if t.pending.Add(-1) == 0 {
			t.caller.open()
		}
	}
}

// runOne runs fn and keeps the first panic for the caller.
func (t *Team) runOne(worker int) {
	defer func() {
		if v := recover(); v != nil {
			err := fmt.Errorf("worker %d: %v\n%s", worker, v, debug.Stack())
			t.failure.CompareAndSwap(nil, &err)
		}
	}()
	t.fn(worker)
}

// gate lets one goroutine wait for a condition that others make true and then
// announce with open. Only that goroutine calls wait.
type gate struct {
	parked atomic.Bool
	wake   chan struct{} // holds a token only while its owner is on the way to take it
}

func (g *gate) init() { g.wake = make(chan struct{}, 1) }

// wait returns when ready returns true. It checks ready again after it has set parked, and
// open checks parked after the condition is true, so no wake-up is lost.
func (g *gate) wait(rounds int, ready func() bool) {
	for range rounds {
		for range spinLoads {
			if ready() {
				return
			}
			pause()
		}
		runtime.Gosched()
	}
	for {
		g.parked.Store(true)
		if ready() && g.parked.CompareAndSwap(true, false) {
			return
		}
		<-g.wake // either not ready, or open took the flag and sends a token
		if ready() {
			return
		}
	}
}

// open wakes the waiting goroutine if it parked.
func (g *gate) open() {
	if g.parked.CompareAndSwap(true, false) {
		g.wake <- struct{}{}
	}
}

// Split gives worker's share [lo,hi) of total, in multiples of tile; the last
// share ends at total. Shares differ by one tile at most.
func Split(total, tile, worker, workers int) (lo, hi int) {
	tiles := (total + tile - 1) / tile
	lo = tiles * worker / workers * tile
	hi = tiles * (worker + 1) / workers * tile
	return min(lo, total), min(hi, total)
}

// portionEnds are where the rounds of portions end, in eighths of the whole.
var portionEnds = [...]int{0, 4, 6, 7, 8}

// Portion gives portion i of total, in multiples of tile but for the end of the last one. It
// reports false where there are no more; some may be empty. Workers that take one portion
// after the other end at about the same time, even if some are slower or begin later: the
// first portions, one for each worker, are half of the whole, and the last ones are small.
func Portion(total, tile, i, workers int) (lo, hi int, ok bool) {
	round, place := i/workers, i%workers
	if round >= len(portionEnds)-1 {
		return total, total, false
	}
	tiles, eighths := (total+tile-1)/tile, portionEnds[round+1]-portionEnds[round]
	at := func(place int) int {
		return min(total, tiles*(portionEnds[round]*workers+place*eighths)/(8*workers)*tile)
	}
	return at(place), at(place + 1), true
}
