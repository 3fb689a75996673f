package shared

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// dayUse is what Redis has of the day, once each gateway has said its last word, and what the
// gateways charged.
func (w *world) dayUse(limits budget.Limits) (used, charged float64) {
	w.t.Helper()
	for _, l := range w.links {
		l.failing, l.silent = false, false
	}
	for range 3 { // for slices, and for what the first call says after the last one
		w.pass(time.Second)
		lastWord(w.stores, limits)
	}
	w.pass(time.Second)
	w.pass(time.Second)
	for _, s := range w.stores {
		a := s.Audit()
		if a.Reserved != a.Settled+a.Refunded {
			w.t.Errorf("%+v", a)
		}
		charged += float64(a.Input + a.Output)
	}
	text, _ := w.redis.Get(bookKey("forebay", budget.Key{Tenant: "t", Model: "m", Kind: budget.KindTenant}))
	return readBook(w.t, text).V[budget.Day].(float64), charged
}

// TestALostAnswerIsChargedOnceAfterALoss: a gateway's call was done and its answer lost;
// another gateway saw what it charged; then Redis lost its data. Neither the tokens nor
// the slice count twice.
func TestALostAnswerIsChargedOnceAfterALoss(t *testing.T) {
	limits := budget.Limits{TokensPerDay: 1_000_000}
	for name, turns := range map[string][]int{"the other comes first": {0, 1, 2}, "it comes first": {1, 0, 2}, "one that saw less comes between": {2, 1, 0}} {
		w := newWorld(t, false)
		use := func(i int) { w.use(i, limits) }
		use(2)
		use(1)
		use(0)
		w.pass(10 * time.Second) // slices go back
		w.links[1].silent = true
		use(1)
		use(0) // it sees what 1 has been charged
		w.redis.FlushAll()
		w.links[1].silent = false
		for _, i := range turns {
			use(i)
		}
		if used, charged := w.dayUse(limits); used != charged {
			t.Errorf("%s: %v are used, %v were charged", name, used, charged)
		}
	}
}

// use is a request that a gateway admits and that ends.
func (w *world) use(i int, limits budget.Limits) {
	w.t.Helper()
	r, refusal := ask(w.stores[i], limits, 100, 24)
	if refusal != nil {
		w.t.Fatal(refusal)
	}
	r.Settle(100, 24)
}

// TestManyGatewaysAreChargedOnceAfterALoss: the answers to all but one of 24 gateways are
// lost, this one sees what they were charged, and then Redis loses its data.
func TestManyGatewaysAreChargedOnceAfterALoss(t *testing.T) {
	limits := budget.Limits{TokensPerDay: 10_000_000}
	w := newWorldOf(t, 24, false)
	for i := range w.stores {
		w.use(i, limits)
	}
	w.pass(10 * time.Second)
	for i := 1; i < len(w.stores); i++ {
		w.links[i].silent = true
		w.use(i, limits)
		w.links[i].silent = false
	}
	w.use(0, limits)
	w.redis.FlushAll()
	for i := range w.stores {
		w.use(i, limits)
	}
	if used, charged := w.dayUse(limits); used != charged {
		t.Errorf("%v are used, %v were charged", used, charged)
	}
}

// TestANewGatewayIsChargedOnceAfterALoss: the answers to its first calls are lost, another
// sees them, and then Redis loses its data.
func TestANewGatewayIsChargedOnceAfterALoss(t *testing.T) {
	limits := budget.Limits{TokensPerDay: 1_000_000}
	for name, turns := range map[string][]int{"the other comes first": {0, 1, 2}, "it comes first": {1, 0, 2}, "one that saw less comes between": {2, 1, 0}} {
		w := newWorld(t, false)
		w.use(2, limits)
		w.pass(10 * time.Second)
		w.links[1].silent = true
		w.use(1, limits)
		w.use(0, limits) // it sees what 1 has been charged
		w.redis.FlushAll()
		w.links[1].silent = false
		for _, i := range turns {
			w.use(i, limits)
		}
		if used, charged := w.dayUse(limits); used != charged {
			t.Errorf("%s: %v are used, %v were charged", name, used, charged)
		}
	}
}

// TestAGatewayThatIsCutOffIsChargedOnce: a call was done and its answer lost, since the
// gateway is cut off from Redis, for longer than its lease. It comes back to the same book,
// or to one that was made after a loss.
func TestAGatewayThatIsCutOffIsChargedOnce(t *testing.T) {
	limits := budget.Limits{TokensPerDay: 1_000_000}
	for name, flushed := range map[string]bool{"the same book": false, "a new one": true} {
		w := newWorld(t, false)
		for i := range w.stores {
			w.use(i, limits)
		}
		w.pass(10 * time.Second)
		w.links[1].silent = true
		w.use(1, limits)
		w.links[1].failing = true
		for range 5 {
			w.pass(10 * time.Second)
			w.use(0, limits)
		}
		if flushed {
			w.redis.FlushAll()
			w.use(0, limits)
		}
		w.links[1].failing, w.links[1].silent = false, false
		w.use(1, limits)
		if used, charged := w.dayUse(limits); used != charged {
			t.Errorf("%s: %v are used, %v were charged", name, used, charged)
		}
	}
}

// TestUseAddsUpWhateverIsLost: calls do not arrive, answers are lost, gateways are cut off
// for longer than their leases, Redis loses its data, in any order. What is used of the day is what was charged, to the token.
func TestUseAddsUpWhateverIsLost(t *testing.T) {
	limits := budget.Limits{TokensPerDay: 10_000_000, Concurrency: 1000}
	for seed := range uint64(25) {
		w, random := newWorld(t, false), rand.New(rand.NewPCG(seed, 2))
		var open []*budget.Reservation
		for range 3 { // each knows of the others
			lastWord(w.stores, limits)
			w.pass(11 * time.Second)
		}
		for range 200 {
			w.redis.SetTime(w.start.Add(time.Duration(w.moved.Add(int64(time.Millisecond))))) // a book is known by when it was made
			for _, l := range w.links {
				l.failing, l.silent = random.IntN(6) == 0, random.IntN(4) == 0
			}
			switch random.IntN(8) {
			case 0:
				if random.IntN(4) == 0 {
					w.redis.FlushAll()
				}
			case 1:
				w.pass(time.Duration(random.IntN(3000)) * time.Millisecond)
				if random.IntN(8) == 0 { // longer than leases
					w.pass(40 * time.Second)
				}
			case 2, 3, 4:
				if r, refusal := ask(w.stores[random.IntN(3)], limits, 1+random.IntN(100), random.IntN(300)); refusal == nil {
					open = append(open, r)
				}
			default:
				if len(open) > 0 {
					i := random.IntN(len(open))
					end(open[i], random)
					open[i] = open[len(open)-1]
					open = open[:len(open)-1]
				}
			}
		}
		for _, r := range open {
			end(r, random)
		}
		if used, charged := w.dayUse(limits); used != charged {
			t.Errorf("seed %d: %v are used, %v were charged", seed, used, charged)
		}
	}
}

// end ends a reservation in one of the ways in which requests end.
func end(r *budget.Reservation, random *rand.Rand) {
	switch random.IntN(4) {
	case 0:
		r.Refund()
	case 1:
		r.Settle(random.IntN(50), 0)
	default:
		r.Used(random.IntN(400))
		r.Settle(random.IntN(100), 400+random.IntN(100))
	}
}
