package sim

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// TestPromisesOfASuddenOverload: in the first seconds at five and ten times the capacity
// nearly every promise is kept, also by a server that has just started and has seen no
// answer yet, where the engine believes its steps to take two thirds of their time, and
// where places bind and not prefill. Few are taken back.
func TestPromisesOfASuddenOverload(t *testing.T) {
	const first = 8 * time.Second
	for _, c := range []struct {
		name        string
		engine      func() *Engine
		load        float64
		seeds       uint64
		requests    int
		calm        int // requests before, at 0.8 of the capacity
		belief      float64
		revokedMost float64
	}{
		{"fresh", cpuEngine, 5, 6, 1500, 0, 1, 0.005},
		{"fresh, costs too low", cpuEngine, 5, 6, 1500, 0, 2. / 3, 0.012},
		{"after a calm time", cpuEngine, 5, 6, 1500, 100, 1, 0.005},
		{"ten times, after a calm time", cpuEngine, 10, 4, 3000, 100, 1, 0.005},
		{"a small model", smallEngine, 5, 2, 16000, 600, 1, 0.02},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := c.engine()
			believed := e.cost()
			for _, x := range []*float64{&believed.Base, &believed.PrefillToken, &believed.PrefillContext, &believed.DecodeRow, &believed.DecodeContext} {
				*x *= c.belief
			}
			var p promises
			for seed := range c.seeds {
				made, err := Generate("uniform", c.requests, seed)
				if err != nil {
					t.Fatal(err)
				}
				trace, from := suddenly(atLoad(t, e, made, c.load), c.calm, c.load)
				p.count(playBelieving(t, e, trace, believed, seed), from, from+first)
			}
			t.Logf("%+v", p)
			if p.made < 200*int(c.seeds) || p.broken() > 0.008 || p.takenBack() > c.revokedMost {
				t.Errorf("of %d promises %d were broken and %d taken back", p.made, p.late, p.revoked)
			}
		})
	}
}

// TestPromisesWhereTheMachineSlows: the engine becomes half as fast while the queue is
// long. Those that cannot be in time any more are told; few of the others come late.
func TestPromisesWhereTheMachineSlows(t *testing.T) {
	var p promises
	for seed := range uint64(6) {
		e := cpuEngine()
		made, err := Generate("uniform", 600, seed)
		if err != nil {
			t.Fatal(err)
		}
		trace := atLoad(t, e, made, 2)
		trace.Slow = []Slow{{At: 0.5, For: time.Minute, Factor: 2}}
		p.count(playBelieving(t, e, trace, e.cost(), seed), trace.span()/2-3*time.Second, trace.span())
	}
	t.Logf("%+v", p)
	if p.made < 600 || p.revoked == 0 || p.broken() > 0.015 || p.takenBack() > 0.045 {
		t.Errorf("of %d promises %d were broken and %d taken back", p.made, p.late, p.revoked)
	}
}

// TestPromisesWhereTheMachineFalters: in a lasting overload the engine needs half as long
// again for five seconds. Nearly all promises hold, since the queue is short. In a young
// one more are taken back, since a burst may use the whole goal.
func TestPromisesWhereTheMachineFalters(t *testing.T) {
	for _, c := range []struct {
		load        float64
		after       time.Duration
		revokedMost float64
	}{
		{2, 1200 * time.Millisecond, 0.06},
		{5, 1200 * time.Millisecond, 0.06},
		{2, 2500 * time.Millisecond, 0.01},
		{5, 2500 * time.Millisecond, 0.01},
		{2, 6 * time.Second, 0.01},
		{5, 6 * time.Second, 0.01},
	} {
		var p promises
		for seed := range uint64(6) {
			e := cpuEngine()
			made, err := Generate("uniform", int(300*c.load), seed)
			if err != nil {
				t.Fatal(err)
			}
			trace, from := suddenly(atLoad(t, e, made, c.load), 60, c.load)
			slow := Slow{At: float64(from+c.after) / float64(trace.span()), For: 5 * time.Second, Factor: 1.5}
			trace.Slow = []Slow{slow}
			p.count(playBelieving(t, e, trace, e.cost(), seed), from, from+c.after+slow.For)
		}
		t.Logf("%g times the capacity, slower after %v: %+v, broken %.4f, taken back %.4f", c.load, c.after, p, p.broken(), p.takenBack())
		if p.made < 800 || p.broken() > 0.01 || p.takenBack() > c.revokedMost {
			t.Errorf("%g times the capacity, slower after %v: of %d promises %d were broken and %d taken back", c.load, c.after, p.made, p.late, p.revoked)
		}
	}
}

// promises are what became of those made in a stretch of time.
type promises struct{ made, late, revoked int }

func (p *promises) count(r *run, from, to time.Duration) {
	for _, j := range r.jobs {
		if !j.admitted || j.At < from || j.At >= to {
			continue
		}
		p.made++
		switch {
		case j.ending == refused:
			p.revoked++
		case !j.kept():
			p.late++
		}
	}
}

func (p *promises) broken() float64    { return float64(p.late) / float64(p.made) }
func (p *promises) takenBack() float64 { return float64(p.revoked) / float64(p.made) }

// smallEngine computes so fast that its places bind, 64 at once, and not its prefill: a
// tiny model on two cores, gateway and clients on the same ones.
func smallEngine() *Engine {
	e := cpuEngine()
	e.Name = "a tiny model on two CPU cores"
	e.BaseMS, e.PrefillTokenMS, e.PrefillContextMS, e.DecodeRowMS, e.DecodeContextMS = 0.04, 0.015, 1e-6, 0.018, 2e-5
	e.ArrivalMS, e.Noise, e.StallMS, e.StallsMinute = 0.15, 0.25, 20, 60
	return e
}

// suddenly slows the first calm requests of a trace at a load down to 0.8 times the
// capacity, and returns when the others begin.
func suddenly(t *Trace, calm int, load float64) (*Trace, time.Duration) {
	slow := &Trace{Name: t.Name}
	var from, shift time.Duration
	for i, r := range t.Requests {
		if i < calm {
			shift = time.Duration(float64(r.At) * (load/0.8 - 1))
		} else if i == calm {
			shift += 3 * time.Second // all of the calm ones end
			from = r.At + shift
		}
		r.At += shift
		slow.Requests = append(slow.Requests, r)
	}
	return slow, from
}

// playBelieving plays a trace on an engine that begins with wrong costs.
func playBelieving(t *testing.T, e *Engine, trace *Trace, believed cost.Cost, seed uint64) *run {
	t.Helper()
	r, err := newRun(e, trace, "forebay", testGoals(t), seed)
	if err != nil {
		t.Fatal(err)
	}
	r.m.fit.Restore(believed)
	r.p.report(r.m.report(0), 0)
	for r.left > 0 {
		if err := r.turn(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}
