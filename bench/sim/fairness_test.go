package sim

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// TestFairnessCostsGoals: at twice the capacity the mixed trace's goals cannot be kept as
// often as the Scheduler keeps them with a Jain's index of 0.95, in the same engine time.
// The choice that it is compared with knows every size: the smallest requests of all
// tenants, of the greedy one no more than so many times its max-min part.
func TestFairnessCostsGoals(t *testing.T) {
	for seed := range uint64(2) {
		made, err := Generate("mixed", 5000, seed)
		if err != nil {
			t.Fatal(err)
		}
		g, err := newGoals(&Options{Goal: 2 * time.Second, Slack: 2})
		if err != nil {
			t.Fatal(err)
		}
		e := DefaultEngine()
		busy, err := busyTime(e, made, g)
		if err != nil {
			t.Fatal(err)
		}
		r, err := play(e, (&Result{}).atLoad(made, &Options{Load: 2, Seeds: 1}, busy), "forebay", g, seed)
		if err != nil {
			t.Fatal(err)
		}
		c := newChoice(r)
		t.Logf("seed %d: goodput %.3f, index %.3f", seed, c.kept, r.entitled)
		for _, most := range []float64{3, 2.5, 2.2, 2, 1.8, 1.5, 1.2} {
			goodput, index := c.smallest(most)
			t.Logf("the greedy tenant gets at most %.1f times its part: goodput %.3f, index %.3f", most, goodput, index)
			if index >= 0.95 && goodput >= c.kept {
				t.Errorf("seed %d: an index of %.3f keeps %.3f of the goals, the Scheduler %.3f", seed, index, goodput, c.kept)
			}
		}
	}
}

// choice is a run's interactive requests, for another choice among them.
type choice struct {
	tenants  []string
	entitled []float64 // of the time that all got, by tenant
	requests []sized   // the smallest first
	time     float64
	kept     float64 // by the run
}

type sized struct {
	tenant int
	whole  float64
}

func newChoice(r *run) *choice {
	c := &choice{}
	var wants []float64
	last := r.jobs[len(r.jobs)-1].At
	for _, j := range r.jobs {
		if j.Class != interactive {
			continue
		}
		i := slices.Index(c.tenants, j.Tenant)
		if i < 0 {
			i = len(c.tenants)
			c.tenants, wants = append(c.tenants, j.Tenant), append(wants, 0)
		}
		whole := r.m.whole(j).Seconds()
		wants[i] += whole
		c.requests = append(c.requests, sized{i, whole})
		if j.first > 0 && j.first < last {
			c.time += whole
		}
		if j.kept() {
			c.kept++
		}
	}
	c.kept /= float64(len(c.requests))
	c.entitled = maxMin(wants, c.time)
	slices.SortFunc(c.requests, func(a, b sized) int { return cmp.Compare(a.whole, b.whole) })
	return c
}

// smallest chooses the smallest requests, of the greedy tenant at most so many times its
// part.
func (c *choice) smallest(most float64) (goodput, index float64) {
	got, left, n := make([]float64, len(c.tenants)), c.time, 0.
	for _, r := range c.requests {
		after := got[r.tenant] + r.whole
		if r.whole > left || c.tenants[r.tenant] == "abuser" && after > most*c.entitled[r.tenant] {
			continue
		}
		got[r.tenant] = after
		left -= r.whole
		n++
	}
	for i := range got {
		got[i] /= c.entitled[i]
	}
	return n / float64(len(c.requests)), jain(got)
}
