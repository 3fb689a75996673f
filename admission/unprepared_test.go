package admission

import (
	"math/rand/v2"
	"testing"
	"time"
)

// unpreparedLoad is a load of tenants whose bodies have about four bytes a token, some
// of which are cached.
type unpreparedLoad struct {
	rnd     *rand.Rand
	tenants int
	size    func(*rand.Rand) int
	gap     time.Duration // mean
	cached  float64       // largest part
}

func (l *unpreparedLoad) next() (wait time.Duration, d Demand) {
	n := l.size(l.rnd)
	uncached := max(1, n-int(l.cached*l.rnd.Float64()*float64(n)))
	d = Demand{
		Tenant: string(rune('a' + l.rnd.IntN(l.tenants))), Class: "interactive", Sequences: 1, DecodeTokens: 1,
		PromptTokens: n, UncachedTokens: uncached, BodyBytes: 200 + 4*n + l.rnd.IntN(1+n/8),
	}
	return time.Duration(l.rnd.ExpFloat64() * float64(l.gap)), d
}

func alike(*rand.Rand) int { return 91 }

func different(rnd *rand.Rand) int { return 5 + int(rnd.ExpFloat64()*80) }

// TestWhatIsRefusedUnpreparedWouldBeRefused: what hopelessLine finds is refused on
// arrival too, whatever the prompt's cost turns out to be. Of requests whose bodies tell
// their sizes it finds most, and of others none.
func TestWhatIsRefusedUnpreparedWouldBeRefused(t *testing.T) {
	for _, c := range []struct {
		name                  string
		load                  unpreparedLoad
		foundLeast, foundMost float64 // of those that are refused
	}{
		{"alike", unpreparedLoad{tenants: 1, size: alike, gap: 20 * time.Millisecond}, 0.9, 1},
		{"alike, of three tenants", unpreparedLoad{tenants: 3, size: alike, gap: 15 * time.Millisecond}, 0.8, 1},
		{"partly cached", unpreparedLoad{tenants: 2, size: alike, gap: 10 * time.Millisecond, cached: 0.95}, 0, 0.02},
		{"different", unpreparedLoad{tenants: 2, size: different, gap: 10 * time.Millisecond}, 0.5, 1},
		{"different and cached, at 1.2 times", unpreparedLoad{tenants: 4, size: different, gap: 50 * time.Millisecond, cached: 0.9}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.load.rnd = rand.New(rand.NewPCG(5, 9))
			p := newPipe(t, goals(""))
			refused, found := 0, 0
			for i := range 3000 {
				wait, d := c.load.next()
				p.runUntil(p.now + wait)
				if i%40 == 0 {
					d.UncachedTokens = 1 // unlike the others
				}
				p.draw(&d)
				l, _ := p.hopelessLine(&Demand{Tenant: d.Tenant, Class: d.Class, Sequences: 1, DecodeTokens: 1, BodyBytes: d.BodyBytes, Draw: d.Draw})
				e := p.arrive(d)
				switch {
				case e != nil && l != nil:
					t.Fatalf("a request of %d tokens was let in", d.UncachedTokens)
				case l != nil:
					found++
				}
				if e == nil {
					refused++
				}
			}
			t.Logf("%d refused, %d found", refused, found)
			if share := float64(found) / float64(refused); share < c.foundLeast || share > c.foundMost {
				t.Errorf("of %d refused %d were found", refused, found)
			}
		})
	}
}

// TestRefuseBooksWhatArriveWould: with Refuse before each arrival as many are served,
// for each tenant, and a refusal says the same.
func TestRefuseBooksWhatArriveWould(t *testing.T) {
	play := func(before bool) (served map[string]int, unprepared int, said [2]*Refusal) {
		load := unpreparedLoad{rnd: rand.New(rand.NewPCG(6, 1)), tenants: 3, size: alike, gap: 12 * time.Millisecond}
		p := newPipe(t, goals(""))
		served = map[string]int{}
		for range 4000 {
			wait, d := load.next()
			p.runUntil(p.now + wait)
			if before {
				if r := p.Refuse(&d, p.now); r != nil {
					unprepared++
					said[0] = r
					continue
				}
			}
			e, r := p.Arrive(d, p.now)
			if e == nil {
				said[1] = r
				continue
			}
			p.entries = append(p.entries, e)
			served[d.Tenant]++
		}
		return served, unprepared, said
	}
	without, _, _ := play(false)
	with, unprepared, said := play(true)
	if unprepared < 2000 {
		t.Errorf("only %d were refused before they were prepared", unprepared)
	}
	for name, n := range without {
		if with[name] < n*9/10 || with[name] > n*11/10 {
			t.Errorf("tenant %s: %d served, %d without", name, with[name], n)
		}
	}
	if said[0].Reason != Late || said[0].Message != said[1].Message || said[0].RetryAfter < retryMin {
		t.Errorf("%+v, on arrival %+v", said[0], said[1])
	}
	t.Logf("%v, %d unprepared, without %v", with, unprepared, without)
}
