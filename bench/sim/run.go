package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/cost"
)

// run plays a trace through a policy and a machine, on a clock of its own.
type run struct {
	m       *machine
	p       policy
	jobs    []*job
	from    time.Duration // the first arrival that counts
	cancels []*job        // those that will be cancelled, by when
	arrived int
	left    int // requests that have not ended
	now     time.Duration
	woken   time.Duration // when the policy last asked to be called
	tally   *tally

	entitled float64 // see weighEntitled
}

// never is after everything.
const never = time.Duration(math.MaxInt64)

// goals are the classes, as both the Scheduler and the measuring know them.
type goals struct {
	config admission.Config
	byName map[string]admission.Class
}

// slackNone is the least slack that a class can have.
const slackNone = 0.01

func newGoals(o *Options) (*goals, error) {
	g := &goals{byName: map[string]admission.Class{}}
	g.config.Classes = []admission.Class{{Name: interactive, FirstTokenGoal: o.Goal, PrefillSlack: max(o.Slack, slackNone)}}
	table, err := g.config.ClassTable()
	for _, c := range table {
		g.byName[c.Name] = c
	}
	return g, err
}

// of is the goal for the time to first token of r, 0 for none.
func (g *goals) of(r *Request, model *cost.Cost, e *Engine) time.Duration {
	c := g.byName[r.Class]
	if c.FirstTokenGoal == 0 {
		return 0
	}
	return c.FirstTokenGoal + time.Duration(c.PrefillSlack*float64(model.Prefill(r.Prompt-r.Cached, r.Cached, e.StepTokensMax)))
}

// play runs a trace to the end of its last request.
func play(e *Engine, t *Trace, name string, g *goals, seed uint64) (*run, error) {
	r, err := newRun(e, t, name, g, seed)
	if err != nil {
		return nil, err
	}
	for r.left > 0 {
		if err := r.turn(); err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
	}
	return r, nil
}

// newRun is a run before its first event.
func newRun(e *Engine, t *Trace, name string, g *goals, seed uint64) (*run, error) {
	newPolicy, err := makerOf(name)
	if err != nil {
		return nil, err
	}
	r := &run{m: newMachine(e, t, seed), from: t.From, left: len(t.Requests)}
	if r.p, err = newPolicy(r.m, g.config); err != nil {
		return nil, err
	}
	rnd := rand.New(rand.NewPCG(seed, 3))
	for i := range t.Requests {
		j := &job{Request: &t.Requests[i], index: i}
		j.factor = math.Exp(rnd.NormFloat64()*e.CostNoise - e.CostNoise*e.CostNoise/2)
		j.goal = g.of(j.Request, &r.m.model, e)
		j.limit = g.byName[j.Class].WaitLimit
		r.jobs = append(r.jobs, j)
		if j.CancelAfter > 0 {
			j.cancelAt = j.At + max(j.CancelAfter, e.wayIn())
			r.cancels = append(r.cancels, j)
		}
	}
	slices.SortStableFunc(r.cancels, func(a, b *job) int { return cmp.Compare(a.cancelAt, b.cancelAt) })
	r.tally = newTally(r.jobs)
	return r, nil
}

// turn moves the clock to the next event, and lets it happen.
func (r *run) turn() error {
	arrival, cancel, end, wake := never, never, never, never
	if r.arrived < len(r.jobs) {
		arrival = r.jobs[r.arrived].At + r.m.wayIn()
	}
	for len(r.cancels) > 0 && r.cancels[0].ending != unended {
		r.cancels = r.cancels[1:]
	}
	if len(r.cancels) > 0 {
		cancel = r.cancels[0].cancelAt
	}
	if r.m.busy {
		end = r.m.ends
	}
	if at, ok := r.p.wakeAt(); ok {
		wake = max(at, r.woken+time.Millisecond)
	}
	next := min(arrival, cancel, end, wake)
	if next == never {
		return fmt.Errorf("%d requests wait, and nothing will ever start them", r.left)
	}
	r.now = max(r.now, next)
	r.tally.advance(r.now)
	switch {
	case end == next:
		r.stepEnds()
	case arrival == next:
		r.arrive()
	case cancel == next:
		r.cancel(r.cancels[0])
	default:
		r.woken = r.now
	}
	r.release()
	return nil
}

func (r *run) arrive() {
	j := r.jobs[r.arrived]
	r.arrived++
	r.m.arrival()
	if j.Prompt+j.Output > r.m.KVTokens {
		j.ending = refused // the machine cannot hold it, whatever the policy
	} else {
		r.p.arrive(j, r.now)
	}
	r.tally.waits(j, 1)
	if j.admitted = j.ending == unended; !j.admitted {
		r.tally.waits(j, -1)
		r.end(j, j.ending)
	}
	if r.arrived == len(r.jobs) {
		r.weighEntitled()
	}
}

// release gives the machine what the policy releases, and begins the next step.
func (r *run) release() {
	for {
		j := r.p.next(r.now)
		if j == nil {
			break
		}
		j.started, j.released = true, r.now
		r.tally.waits(j, -1)
		r.m.take(j)
	}
	for _, j := range r.p.takeRefused() {
		r.tally.waits(j, -1)
		r.end(j, refused)
	}
	if !r.m.busy {
		r.m.start(r.now)
	}
}

func (r *run) stepEnds() {
	r.m.finish(r.tally.charge, r.token)
	report := r.m.report(r.now)
	if !r.p.inside() {
		r.m.start(r.now)
	}
	r.p.report(report, r.now)
}

// token counts a token of a sequence, and ends it with its last one.
func (r *run) token(j *job) {
	if j.first == 0 {
		j.first = r.now + r.m.wayOut()
	} else {
		r.tally.gap(j, r.now-j.last)
	}
	j.last = r.now
	r.p.progress(j, r.now)
	if j.tokens == j.Output {
		r.m.drop(j)
		r.end(j, finished)
		j.ended += r.m.wayOut()
		r.p.done(j, r.now)
	}
}

func (r *run) cancel(j *job) {
	if j.index >= r.arrived {
		return
	}
	if j.started {
		r.m.lost += j.computed
		r.m.drop(j)
	} else {
		r.tally.waits(j, -1)
	}
	r.end(j, cancelled)
	r.p.done(j, r.now)
}

func (r *run) end(j *job, how ending) {
	j.ending, j.ended = how, r.now
	r.left--
}
