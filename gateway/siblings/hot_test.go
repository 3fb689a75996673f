package siblings

import (
	"math/rand/v2"
	"testing"
	"time"
)

// One beginning that everybody asks for comes to a fleet of which one replica holds it.
// While that one has time it serves all; when its backlog costs more than computing, some
// others compute it again, and the fleet shares the work. Nobody herds: no replica has much
// more to do than the others, and few compute it in vain.
func TestAHotPrefixIsCopied(t *testing.T) {
	const replicas, shared, requests = 16, 16, 2000 // the beginning has 16 blocks of 512 tokens
	var trace []arrival
	rnd := rand.New(rand.NewPCG(9, 9))
	at := time.Duration(0)
	for i := range requests {
		a := arrival{prompt: 512*(shared+1) + 100, output: 200, session: uint64(i)}
		for b := range uint64(shared) {
			a.blocks = append(a.blocks, mix(b))
		}
		a.blocks = append(a.blocks, mix(uint64(1_000_000+i)))
		at += time.Duration(rnd.ExpFloat64() * float64(time.Second))
		a.at = at
		trace = append(trace, a)
	}
	holders := func(f *fleet) (n int) {
		for _, s := range f.replicas {
			if s.cache.match(trace[0].blocks[:shared]) == shared {
				n++
			}
		}
		return n
	}
	var copies []int
	play := func(load float64) (o outcome, end int) {
		copies = copies[:0]
		var last *fleet
		o = run(t, trace, replicas, load, func(f *fleet, at int, a *arrival) int {
			if last = f; len(copies) < requests {
				copies = append(copies, holders(f))
			}
			return f.choose(at, a, rnd)
		})
		t.Logf("load %.2f: %v; %d of %d replicas hold it, %d after 100 requests", load, o, holders(last), replicas, copies[100])
		return o, holders(last)
	}
	calm, few := play(0.05)
	_, some := play(0.4)
	busy, many := play(1.5)
	if few > replicas/2 || calm.hits < 0.85 {
		t.Errorf("with little to do %d replicas computed it: %v", few, calm)
	}
	if some < few || many < some || many <= few || busy.skew > 1.3 || busy.hits < 0.85 || busy.good < 0.95 {
		t.Errorf("with much to do %d replicas hold it: %v", many, busy)
	}
}
