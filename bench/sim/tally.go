package sim

import (
	"math"
	"time"
)

// tally counts during a run what its requests do not show afterwards: engine time by
// tenant, which tenants had requests waiting when, and the times between tokens.
type tally struct {
	lines map[line]*lineTally
	order []*lineTally
	gaps  map[string]*gapHistogram // by class
	ticks int
	jains []float64
	gapMS float64 // the largest service gap
	pairs map[[2]*lineTally]*pair
}

// line is a tenant in a class; fairness is measured between the lines of a class.
type line struct{ class, tenant string }

type lineTally struct {
	line
	waiting     int
	dipped      bool // nothing waited at some moment since the last tick
	backlogged  int  // ticks in a row in which something always waited
	served      float64
	windowStart float64 // served at the window's start
}

// pair follows the difference in service of two lines while both wait.
type pair struct{ least, most float64 }

const (
	tick        = 100 * time.Millisecond
	windowTicks = 100 // 10 s
)

func newTally(jobs []*job) *tally {
	t := &tally{lines: map[line]*lineTally{}, gaps: map[string]*gapHistogram{}, pairs: map[[2]*lineTally]*pair{}}
	for _, j := range jobs {
		l := line{j.Class, j.Tenant}
		if t.lines[l] == nil {
			t.lines[l] = &lineTally{line: l, dipped: true}
			t.order = append(t.order, t.lines[l])
		}
		if t.gaps[j.Class] == nil {
			t.gaps[j.Class] = &gapHistogram{}
		}
	}
	return t
}

func (t *tally) of(j *job) *lineTally { return t.lines[line{j.Class, j.Tenant}] }

// waits counts a request that begins (1) or ends (-1) to wait.
func (t *tally) waits(j *job, sign int) {
	l := t.of(j)
	l.waiting += sign
	l.dipped = l.dipped || l.waiting == 0
}

// charge books engine time to a request's tenant.
func (t *tally) charge(j *job, d time.Duration) { t.of(j).served += d.Seconds() }

func (t *tally) gap(j *job, d time.Duration) { t.gaps[j.Class].add(d) }

// advance moves the clock, tick by tick.
func (t *tally) advance(now time.Duration) {
	for due := int(now / tick); t.ticks < due; t.ticks++ {
		if due-t.ticks > 2*windowTicks { // a long silence, in which nothing waits
			t.ticks = due - windowTicks
		}
		t.tick()
	}
}

func (t *tally) tick() {
	for _, l := range t.order {
		if l.dipped {
			l.backlogged = 0
		} else {
			l.backlogged++
		}
		l.dipped = l.waiting == 0
	}
	for i, a := range t.order {
		for _, b := range t.order[:i] {
			t.compare(a, b)
		}
	}
	if t.ticks%windowTicks == windowTicks-1 {
		t.window()
	}
}

// compare follows the service gap of two tenants of a class.
func (t *tally) compare(a, b *lineTally) {
	if a.class != b.class {
		return
	}
	key := [2]*lineTally{a, b}
	if a.backlogged == 0 || b.backlogged == 0 {
		delete(t.pairs, key)
		return
	}
	ahead := 1e3 * (a.served - b.served)
	p := t.pairs[key]
	if p == nil {
		p = &pair{ahead, ahead}
		t.pairs[key] = p
	}
	p.least, p.most = min(p.least, ahead), max(p.most, ahead)
	t.gapMS = max(t.gapMS, p.most-p.least)
}

// window ends a window of 10 s: Jain's index of each class over the service of
// the tenants that had work waiting all the time.
func (t *tally) window() {
	got := map[string][]float64{}
	for _, l := range t.order {
		if l.backlogged >= windowTicks {
			got[l.class] = append(got[l.class], l.served-l.windowStart)
		}
		l.windowStart = l.served
	}
	for _, shares := range got {
		if len(shares) > 1 {
			t.jains = append(t.jains, jain(shares))
		}
	}
}

// jain is Jain's index: 1 when all are equal, 1/n when one has everything.
func jain(xs []float64) float64 {
	sum, squares := 0., 0.
	for _, x := range xs {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(xs)) * squares)
}

// gapHistogram counts times between tokens in 64 equal parts of every octave.
type gapHistogram struct {
	counts [64 * 48]int // up to 2^48 ns
	sum    int
}

func (h *gapHistogram) add(d time.Duration) {
	bits := math.Float64bits(max(1, float64(d)))
	h.counts[min(int(bits>>46)-1023<<6, len(h.counts)-1)]++ // exponent and 6 bits of mantissa
	h.sum++
}

// quantile is the middle of the part in which the share q of the times ends, in
// seconds; NaN of nothing.
func (h *gapHistogram) quantile(q float64) float64 {
	if h == nil || h.sum == 0 {
		return math.NaN()
	}
	left := int(q * float64(h.sum-1))
	for at, n := range h.counts {
		if left -= n; left < 0 {
			return math.Ldexp(1+(float64(at%64)+0.5)/64, at/64) / 1e9
		}
	}
	return math.NaN()
}
