package admission

import (
	"cmp"
	"slices"
	"time"
)

// viewMax is how many waiting and running requests a View shows.
const viewMax = 1000

// View is a picture of the scheduler at now.
func (s *Scheduler) View(now time.Duration) View {
	s.advance(now)
	v := View{Cost: s.engine.cost, Brownout: s.load.rung, Lengths: s.lengths.score.view()}
	for _, k := range s.classes {
		v.Margin = max(v.Margin, s.stretch(k))
		v.Classes = append(v.Classes, ClassView{
			Name: k.Name, Mode: k.mode, Waiting: k.waiting, Running: k.running, WaitingBytes: k.bytes,
			Margin: s.stretch(k), Revoked: k.revoked, Share: k.served.share(s.now), Backlog: k.backlog, Refused: k.refused, Demoted: k.demoted,
		})
		for t, l := range k.held {
			if l.waiting()+l.running > 0 {
				v.Tenants = append(v.Tenants, TenantView{Name: t.name, Class: k.Name, Waiting: l.waiting(), Running: l.running, Deficit: l.deficit, Served: time.Duration(t.served.value(s.now))})
			}
		}
	}
	slices.SortFunc(v.Tenants, func(a, b TenantView) int { return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Name, b.Name)) })
	v.Waiting = s.viewWaiting()
	for _, e := range s.running {
		if len(v.Running) == viewMax {
			break
		}
		v.Running = append(v.Running, RunningView{
			ID: e.demand.ID, Tenant: e.demand.Tenant, Class: e.class.Name, Long: e.long, Ran: s.now - e.started, Tokens: e.tokens, FirstToken: e.firstToken > 0,
		})
	}
	return v
}

// viewWaiting lists what waits, in the order of service as far as it is known now,
// and when each would start if no other request came.
func (s *Scheduler) viewWaiting() []WaitingView {
	entries := slices.Clone(s.expiry.entries)
	slices.SortFunc(entries, func(a, b *Entry) int {
		if a.level != b.level {
			return a.level - b.level
		}
		return compareEntries(a, b)
	})
	var views []WaitingView
	var ahead sums
	var f forecast
	level := out
	for _, e := range entries[:min(viewMax, len(entries))] {
		if e.level != level {
			level, ahead = e.level, sums{}
			f = s.forecast(e.class)
			for _, u := range f.underWay {
				ahead.addUnderWay(u)
			}
		}
		ahead.add(e, 1)
		starts := time.Duration(0)
		if s.engine.cost.Known() {
			starts = max(0, f.expected(&ahead, e.prefill, e.long)-s.now-time.Duration(float64(e.prefill)/f.rate))
		}
		why := s.whyNow(e)
		if why == WhyPaused || why == WhyEngine {
			starts = StartsUnknown
		}
		views = append(views, WaitingView{
			ID: e.demand.ID, Tenant: e.demand.Tenant, Class: e.class.Name, Demoted: e.asked != e.class, Long: e.long,
			Waited: s.now - e.arrived, Starts: starts, Prefill: e.prefill, Cost: e.cost, Uncached: e.uncached(), Why: why,
		})
	}
	return views
}

// whyNow is why e waits at this moment.
func (s *Scheduler) whyNow(e *Entry) Why {
	switch {
	case s.engine.heard && !s.engine.up:
		return WhyEngine
	case e.class.mode == Paused:
		return WhyPaused
	case e.line.deficit <= 0 && len(e.class.lines) > 1:
		return WhyShare
	case !s.leads(e):
		return WhyOrder
	}
	if why := s.gate(e); why != WhyNot {
		return why
	}
	return WhyOrder
}

// wasPaused tells whether a pause of its class took most of e's wait up to now.
func (s *Scheduler) wasPaused(e *Entry) bool {
	paused := e.class.pausedFor(s.now) - e.pausedBefore
	return paused > 0 && 2*paused >= s.now-e.arrived
}

// pausedFor is the time for which the class was paused up to now.
func (k *class) pausedFor(now time.Duration) time.Duration {
	if k.mode == Paused {
		return k.paused + now - k.pausedSince
	}
	return k.paused
}

// leads tells whether e goes first in its lane, or will once its tenant, which
// has no rival in the class, gets new quanta.
func (s *Scheduler) leads(e *Entry) bool {
	first, rounds := s.head(e.class, e.lane())
	if rounds > 0 {
		first = e.line.lanes[e.lane()].head()
	}
	return e == first
}

func (c *score) view() LengthView {
	ratio := func(a, b faded) float64 {
		if b == 0 {
			return 0
		}
		return float64(a / b)
	}
	return LengthView{PairAccuracy: ratio(c.right, c.all), Covered: ratio(c.covered, c.seen), ReserveRatio: ratio(c.reserved, c.used)}
}
