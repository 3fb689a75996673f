package capture

import (
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// kept is a kept or running request. It is never changed.
type kept struct {
	view *View // without its steps
	// record and steps are exact. record is nil in what was kept before records
	// were written to disk; then view has the steps.
	record *telemetry.Record
	end    int64 // of the request, or the instant of looking at a running one
	steps  []step
	lost   []wire.LostTime // during its life
}

// build makes what is kept of r at the instant now, which is the end of r, or for
// a running request the instant of looking. It owns r.
func (s *Store) build(r *telemetry.Record, why reasons, brief bool, now int64) *kept {
	running := r.Finished == 0
	end := r.Finished
	if running {
		end, r.Broken = now, r.Missed(now)
	}
	v := viewOf(r, why)
	v.Running, v.Brief, v.WallMS, v.Promise = running, brief, ms(end-r.Arrived), r.Promise(end).String()
	if running {
		v.Outcome, v.Status = "running", 0
	}
	k := &kept{view: v, record: r, end: end}
	a := account{r: r, v: v, running: running}
	if brief {
		a.culprit, _ = s.requests.find(r.Engine.Slow[0].Largest)
	} else {
		w := s.steps.witnessed(r, end)
		k.steps, v.StepsMore = w.shown(&s.requests)
		v.Neighbours, v.NeighboursMore = w.neighbourViews(&s.requests)
		v.Kernels = w.kernelViews()
		if t := &r.Engine; t.Finished == 0 { // the engine has not told its times, but the steps do
			t.Received, t.Scheduled, t.FirstToken = w.times.Received, w.times.Scheduled, w.times.FirstToken
			t.BeforeFirst, t.AfterFirst = w.times.BeforeFirst, w.times.AfterFirst
		}
	}
	k.lost = s.steps.lostIn(r.Arrived, end)
	if !running {
		s.mu.Lock()
		v.Usual = s.usuals.of(r)
		s.mu.Unlock()
	}
	l := divide(r, end)
	l.lose(k.lost)
	a.busiest = s.steps.busiestIn(r.Arrived, end)
	v.Parts, v.Stall = l.parts(), l.stall()
	a.life, a.within = &l, scopeOf(r.Broken)
	a.causes = l.causes(r.Blocked, a.within)
	v.Cause = a.causes.largest().String()
	if c := endOf(r); c != causeNothing && !running {
		v.Cause = c.String()
	}
	v.Sentence = a.sentence(why&^quiet == 0)
	if why&^quiet == 0 && !running && r.Outcome == telemetry.OK && readsSlowly(r) {
		v.Cause = causeReader.String()
	}
	return k
}

// shown is the view with its steps; nil of nil.
func (k *kept) shown() *View {
	if k == nil || len(k.steps) == 0 || k.record == nil {
		return k.brief()
	}
	v := *k.view
	v.Steps = make([]StepView, len(k.steps))
	for i := range k.steps {
		v.Steps[i] = k.steps[i].view(k.record.Arrived)
	}
	return &v
}

// brief is the view without its steps; nil of nil.
func (k *kept) brief() *View {
	if k == nil {
		return nil
	}
	return k.view
}
