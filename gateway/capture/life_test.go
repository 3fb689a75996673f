package capture

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// randomRecord is any end that a request can come to: cut at any stage, with
// or without the engine's word, and with instants of two processes that differ.
func randomRecord(random *rand.Rand) *telemetry.Record {
	r := &telemetry.Record{ID: "r", Outcome: telemetry.Outcome(random.IntN(20)), Prompts: 1 + random.IntN(2), Serial: 1 + random.Uint64N(50), Arrived: 1 + random.Int64N(1e15)}
	at := r.Arrived
	next := func() int64 { at += random.Int64N(50_000_000); return at }
	stages := []*int64{&r.Decoded, &r.Identified, &r.Prepared, &r.Reserved, &r.Admitted, &r.Dispatched}
	reached := random.IntN(len(stages) + 4)
	for i, stage := range stages {
		if i < reached {
			*stage = next()
		}
	}
	if r.Prepared != 0 {
		r.Render, r.Tokenize = time.Duration(random.Int64N(20_000_000)), time.Duration(random.Int64N(20_000_000))
	}
	if r.Dispatched != 0 && random.IntN(3) > 0 {
		e := &r.Engine
		e.Received = r.Dispatched + random.Int64N(2_000_000) - 500_000
		e.Scheduled = e.Received + random.Int64N(30_000_000)
		e.FirstToken = e.Scheduled + random.Int64N(90_000_000)
		e.Finished = e.FirstToken + random.Int64N(90_000_000)
		switch random.IntN(4) {
		case 0:
			e.FirstToken = 0
		case 1:
			e.FirstToken, e.Scheduled = 0, 0
		}
		split(random, &e.BeforeFirst, max(e.FirstToken, (1-min(1, e.FirstToken))*e.Finished)-e.Received)
		if e.FirstToken != 0 {
			split(random, &e.AfterFirst, e.Finished-e.FirstToken)
		}
		at = max(at, e.Finished)
	}
	if r.Dispatched != 0 && random.IntN(2) == 0 {
		r.FirstToken = next()
		r.FirstWrite = next()
		r.LastToken = next()
	}
	r.Blocked = time.Duration(random.Int64N(10_000_000))
	r.Finished = at + random.Int64N(5_000_000)
	return r
}

// split divides a stretch of time among random parts, exactly.
func split(random *rand.Rand, p *wire.Parts, whole int64) {
	for whole > 0 {
		d := min(whole, 1+random.Int64N(40_000_000))
		p[random.IntN(int(wire.PartCount))] += time.Duration(d)
		whole -= d
	}
}

// TestPartsSum holds every life to its sums, to the nanosecond within, and to
// the microsecond as they are shown.
func TestPartsSum(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	for range 20_000 {
		r := randomRecord(random)
		l := divide(r, r.Finished)
		v := &View{ID: r.ID, WallMS: ms(r.Finished - r.Arrived), Parts: l.parts(), Stall: l.stall()}
		checkSums(t, v)
		c := l.causes(r.Blocked, scopeAll)
		sum := time.Duration(0)
		for _, d := range c {
			sum += d
		}
		if sum != l.wall() {
			t.Errorf("the causes sum to %v of %v", sum, l.wall())
		}
		before, after := l.causes(r.Blocked, scopeBefore), l.causes(r.Blocked, scopeAfter)
		for i := range c {
			if before[i]+after[i] != c[i] {
				t.Errorf("cause %v is %v and %v of %v", cause(i), before[i], after[i], c[i])
			}
		}
		if t.Failed() {
			t.Fatalf("of %+v", r)
		}
	}
}

// TestPartsThatDoNotSumAreSeen is the control of checkSums.
func TestPartsThatDoNotSumAreSeen(t *testing.T) {
	r, _ := slowRecord()
	before := &r.Engine.BeforeFirst
	before[wire.PartOthersPrefill] -= time.Second
	l := divide(r, r.Finished)
	if l.beforeUnknown != time.Second {
		t.Errorf("%v is unexplained of a second that is missing", l.beforeUnknown)
	}
	before[wire.PartOthersPrefill] += 5 * time.Second
	if l = divide(r, r.Finished); l.before.Sum() > time.Duration(l.ends[phasePrefill]-l.ends[phaseDispatch]) {
		t.Errorf("the parts are %v, more than there was", l.before.Sum())
	}
}

func TestThinKeepsTheWorstAndTheEven(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 2))
	for range 300 {
		n := 1 + random.IntN(1000)
		all := make([]seenStep, n)
		worst := 0
		for i := range all {
			all[i] = seenStep{step: step{Number: uint64(i + 1)}, waited: random.Int64N(1000)}
			if all[i].waited > all[worst].waited {
				worst = i
			}
		}
		kept, more := thin(all, 64, func(s *seenStep) int64 { return s.waited })
		if len(kept) != min(n, 64) || more != n-len(kept) {
			t.Fatalf("%d of %d and %d more", len(kept), n, more)
		}
		found := false
		for i := range kept {
			found = found || kept[i].Number == uint64(worst+1)
			if i > 0 && kept[i].Number <= kept[i-1].Number {
				t.Fatal("out of order")
			}
		}
		if !found {
			t.Fatal("the worst is missing")
		}
	}
}
