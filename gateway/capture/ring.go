package capture

import (
	"sync"

	"github.com/forebay-io/forebay/internal/wire"
)

// stepRing holds the last steps of the engine. It has no pointers, so a large
// ring costs the garbage collector nothing, and only the written part takes
// memory. It has one writer.
type stepRing struct {
	mu      sync.Mutex
	steps   []stepEntry
	added   uint64 // steps ever
	entries []stepPart
	parts   uint64 // entries ever, including those skipped at the end of the ring

	heard uint64 // position in the log
	run   uint64 // number of the engine process
	last  uint64 // number of the newest step of that process
	lost  uint64 // steps whose records did not come
	ended int64  // end of the newest step

	losses [lossesKept]wire.LostTime
	lostN  uint64 // losses ever

	busiest  [busiestKept]busy
	busiestN uint64 // ever
}

// lossesKept are far more stretches of lost time than a request meets, and
// busiestKept more changes of who takes the processors.
const (
	lossesKept  = 4096
	busiestKept = 32
)

// busy says who took the processors from the engine, as it was told at an instant.
type busy struct {
	at   int64
	name string
}

// stepEntry is a step. Its parts lie in the ring of entries from first on:
// members, then the sequences left out, then the preempted ones.
type stepEntry struct {
	run, number               uint64
	began, ended              int64
	gap, givenUp, idle        int64
	first                     uint64
	members, leftOut, preempt int32
	decodeRows, prefillTokens int32
	pages                     int32
	predicted                 int64
	kernels                   [wire.KernelClassCount]wire.KernelTime
}

type stepPart struct {
	serial uint64
	own    int64
	tokens int32
	why    wire.Part // why it was left out
	decode bool
}

// partsAStep is how many entries the ring has for each step.
const partsAStep = 8

func newStepRing(steps int) *stepRing {
	return &stepRing{steps: make([]stepEntry, steps), entries: make([]stepPart, max(steps*partsAStep, 4*3*wire.StepListMax)), run: 1}
}

// hear takes what is new in the state.
func (g *stepRing) hear(state *wire.State) {
	g.heard = state.Steps.After(g.heard, func(r *wire.StepRecord) bool {
		g.add(r)
		return true
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := &g.busiest[(g.busiestN+busiestKept-1)%busiestKept]; state.Busiest != last.name {
		g.busiest[g.busiestN%busiestKept] = busy{state.At, state.Busiest}
		g.busiestN++
	}
}

func (g *stepRing) add(r *wire.StepRecord) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case r.Step <= g.last:
		g.run++
	case g.last != 0:
		g.lost += r.Step - g.last - 1
	}
	g.last, g.ended = r.Step, r.Ended
	size := uint64(len(g.entries))
	n := uint64(len(r.Members) + len(r.LeftOut) + len(r.Preempted))
	if at := g.parts % size; at+n > size {
		g.parts += size - at // so that they lie in one piece
	}
	g.steps[g.added%uint64(len(g.steps))] = stepEntry{
		run: g.run, number: r.Step, began: r.Began, ended: r.Ended, gap: int64(r.Gap), givenUp: int64(r.GivenUp), idle: int64(r.Idle), first: g.parts,
		members: int32(len(r.Members)), leftOut: int32(len(r.LeftOut)), preempt: int32(len(r.Preempted)),
		decodeRows: int32(r.DecodeRows), prefillTokens: int32(r.PrefillTokens), pages: int32(r.PagesUsed), predicted: int64(r.Predicted), kernels: r.Kernels,
	}
	for i := range r.Lost {
		g.losses[g.lostN%lossesKept] = r.Lost[i]
		g.lostN++
	}
	g.added++
	to := g.entries[g.parts%size:][:0]
	for i := range r.Members {
		m := &r.Members[i]
		to = append(to, stepPart{serial: m.Serial, own: int64(m.Own), tokens: int32(m.Tokens), decode: m.Decode})
	}
	for _, l := range r.LeftOut {
		to = append(to, stepPart{serial: l.Serial, why: l.Why})
	}
	for _, serial := range r.Preempted {
		to = append(to, stepPart{serial: serial, why: wire.PartPreempted})
	}
	g.parts += n
}

// stepsAtOnce is how many steps are visited before the writer gets the lock.
const stepsAtOnce = 64

// between calls visit for the steps that overlap the time from begin to end,
// oldest first. The arguments are valid during the call, which must not block;
// parts is nil if they were overwritten.
func (g *stepRing) between(begin, end int64, visit func(s *stepEntry, parts []stepPart)) {
	g.mu.Lock()
	at := g.after(begin)
	for done := false; !done; {
		at = max(at, g.oldest())
		for range stepsAtOnce {
			if at == g.added {
				done = true
				break
			}
			s := &g.steps[at%uint64(len(g.steps))]
			if s.began >= end {
				done = true
				break
			}
			visit(s, g.partsOf(s))
			at++
		}
		g.mu.Unlock()
		g.mu.Lock()
	}
	g.mu.Unlock()
}

func (g *stepRing) oldest() uint64 { return g.added - min(g.added, uint64(len(g.steps))) }

// after is the position of the first step that ended after begin.
func (g *stepRing) after(begin int64) uint64 {
	low, high := g.oldest(), g.added
	for low < high {
		if mid := low + (high-low)/2; g.steps[mid%uint64(len(g.steps))].ended > begin {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

func (g *stepRing) partsOf(s *stepEntry) []stepPart {
	size, n := uint64(len(g.entries)), uint64(s.members+s.leftOut+s.preempt)
	if g.parts > size && s.first < g.parts-size {
		return nil
	}
	return g.entries[s.first%size:][:n]
}

// newest returns the end of the newest step, and how many steps were lost.
func (g *stepRing) newest() (ended int64, lost uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ended, g.lost
}

// unknownID stands for requests whose names were overwritten.
const unknownID = "unknown"

// requestRing names the requests of the last generations.
type requestRing struct {
	mu   sync.Mutex
	ring [requestsNamed]requester // by serial
}

// requestsNamed is far more than the steps in the ring have, unless requests are
// tiny.
const requestsNamed = 1 << 14

// requester says which request a generation belongs to.
type requester struct {
	serial                      uint64
	id, clientID, tenant, class string
}

func (g *requestRing) put(q requester) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ring[q.serial%requestsNamed] = q
}

// named is find, with an ID for requests whose names were overwritten.
func (g *requestRing) named(serial uint64) requester {
	q, ok := g.find(serial)
	if !ok {
		q.id = unknownID
	}
	return q
}

func (g *requestRing) find(serial uint64) (requester, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.ring[serial%requestsNamed]
	return q, serial != 0 && q.serial == serial
}
