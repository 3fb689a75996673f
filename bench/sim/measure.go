package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/forebay-io/forebay/admission"
)

// Metric is a number that a run gives; NaN where there is none.
type Metric struct {
	Key   string // with its unit
	Value float64
}

// group is the requests of a class, of a tenant, or all.
type group struct {
	arrived, wanted, kept int // wanted: with a goal, and not cancelled before it
	admitted, promised    int // admitted: wanted, and neither refused on arrival nor demoted; promised: kept of these
	revoked               int // of the admitted: refused after they had waited
	refused, expired      int
	demoted, gone         int
	first, whole          []float64 // seconds
	waitMax               float64
}

func (g *group) add(j *job) {
	g.arrived++
	reached := j.first > 0
	if reached {
		g.first = append(g.first, (j.first - j.At).Seconds())
	}
	end := j.ended
	if j.started {
		end = j.released
	}
	g.waitMax = max(g.waitMax, (end - j.At).Seconds())
	switch j.ending {
	case finished:
		g.whole = append(g.whole, (j.ended - j.At).Seconds())
	case refused:
		g.refused++
		if j.why == admission.TimedOut.String() || j.why == admission.PastDeadline.String() {
			g.expired++
		}
	case cancelled:
		g.gone++
	}
	if j.demoted {
		g.demoted++
	}
	if j.goal == 0 || j.ending == cancelled && !reached && j.ended <= j.deadline() {
		return
	}
	g.wanted++
	if j.kept() {
		g.kept++
	}
	if j.demoted || j.ending == refused && !j.admitted {
		return
	}
	g.admitted++
	switch {
	case j.ending == refused:
		g.revoked++
	case j.kept():
		g.promised++
	}
}

// measure are the group's metrics.
func (g *group) measure(span time.Duration) []Metric {
	slices.Sort(g.first)
	slices.Sort(g.whole)
	share := func(n, of int) float64 {
		if of == 0 {
			return math.NaN()
		}
		return float64(n) / float64(of)
	}
	return []Metric{
		{"requests", float64(g.arrived)},
		{"goodput", share(g.kept, g.wanted)},
		{"goodput_a_second", float64(g.kept) / span.Seconds()},
		{"broken", share(g.admitted-g.revoked-g.promised, g.admitted)},
		{"revoked", share(g.revoked, g.admitted)},
		{"refused", share(g.refused, g.arrived)},
		{"demoted", share(g.demoted, g.arrived)},
		{"expired", share(g.expired, g.arrived)},
		{"cancelled", share(g.gone, g.arrived)},
		{"ttft_mean_s", mean(g.first)},
		{"ttft_p50_s", quantile(g.first, 0.5)},
		{"ttft_p95_s", quantile(g.first, 0.95)},
		{"ttft_p99_s", quantile(g.first, 0.99)},
		{"e2e_p50_s", quantile(g.whole, 0.5)},
		{"e2e_p95_s", quantile(g.whole, 0.95)},
		{"e2e_p99_s", quantile(g.whole, 0.99)},
		{"wait_max_s", g.waitMax},
	}
}

func mean(xs []float64) float64 {
	sum := 0.
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs)) // NaN of none
}

// quantile is of sorted values, by nearest rank.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Outcome is what one run, or the mean of several, came to.
type Outcome struct {
	All     []Metric
	Classes map[string][]Metric
	Tenants map[string][]Metric
}

// outcome measures a run after its end.
func (r *run) outcome() *Outcome {
	all, classes, tenants := &group{}, map[string]*group{}, map[string]*group{}
	of := func(groups map[string]*group, name string) *group {
		if groups[name] == nil {
			groups[name] = &group{}
		}
		return groups[name]
	}
	var ratios []float64
	for _, j := range r.jobs {
		if j.At < r.from {
			continue
		}
		all.add(j)
		of(classes, j.Class).add(j)
		of(tenants, j.Tenant).add(j)
		if j.predicted > 0 && j.first > 0 && !j.demoted {
			ratios = append(ratios, float64(j.first-j.At)/float64(j.predicted))
		}
	}
	slices.Sort(ratios)
	span := r.now - r.from
	o := &Outcome{All: all.measure(span), Classes: map[string][]Metric{}, Tenants: map[string][]Metric{}}
	for name, g := range classes {
		h := r.tally.gaps[name]
		o.Classes[name] = append(g.measure(span), Metric{"tbt_p50_s", h.quantile(0.5)}, Metric{"tbt_p95_s", h.quantile(0.95)}, Metric{"tbt_p99_s", h.quantile(0.99)})
	}
	for name, g := range tenants {
		o.Tenants[name] = g.measure(span)
	}
	h := r.tally.allGaps()
	fair, windows := 1., len(r.tally.jains)
	if windows > 0 {
		fair = mean(r.tally.jains)
	}
	o.All = append(o.All,
		Metric{"tbt_p50_s", h.quantile(0.5)}, Metric{"tbt_p95_s", h.quantile(0.95)}, Metric{"tbt_p99_s", h.quantile(0.99)},
		Metric{"jain", fair}, Metric{"jain_windows", float64(windows)}, Metric{"jain_of_entitled", r.entitled},
		Metric{"service_gap_max_s", r.tally.gapMS / 1e3},
		Metric{"utilisation", r.m.worked.Seconds() / span.Seconds()},
		Metric{"wasted_tokens", float64(r.m.lost)},
		Metric{"estimate_ratio_p50", quantile(ratios, 0.5)}, Metric{"estimate_ratio_p90", quantile(ratios, 0.9)},
	)
	return o
}

func (t *tally) allGaps() *gapHistogram {
	all := &gapHistogram{}
	for _, h := range t.gaps {
		for i, n := range h.counts {
			all.counts[i] += n
		}
		all.sum += h.sum
	}
	return all
}

// weighEntitled finds how fairly the engine's time was shared until the last request
// arrived, before the rest is worked off. Each tenant is entitled to its max-min fair
// part of its class's time, which is its demand if that is less. The result is
// Jain's index over the parts that tenants got of what they were entitled to, of
// the least fair class.
func (r *run) weighEntitled() {
	wants, got := map[line]float64{}, map[line]float64{}
	for _, j := range r.jobs {
		l, whole := line{j.Class, j.Tenant}, r.m.whole(j).Seconds()
		if j.ending != cancelled {
			wants[l] += whole
		}
		got[l] += whole * float64(j.computed) / float64(j.Prompt+j.Output-1)
	}
	r.entitled = 1
	for class := range r.tally.gaps {
		var wanted, given []float64
		total := 0.
		for _, l := range r.tally.order {
			if l.class == class && wants[l.line] > 0 {
				wanted, given = append(wanted, wants[l.line]), append(given, got[l.line])
				total += got[l.line]
			}
		}
		if len(wanted) < 2 || total == 0 {
			continue
		}
		for i, entitled := range maxMin(wanted, total) {
			given[i] /= entitled
		}
		r.entitled = min(r.entitled, jain(given))
	}
}

// maxMin divides total by max-min fairness: none gets more than it wants, and those
// that get less than they want get the same, the largest part of all.
func maxMin(wants []float64, total float64) []float64 {
	order := make([]int, len(wants))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(wants[a], wants[b]) })
	got := make([]float64, len(wants))
	for n, i := range order {
		got[i] = min(wants[i], total/float64(len(wants)-n))
		total -= got[i]
	}
	return got
}
