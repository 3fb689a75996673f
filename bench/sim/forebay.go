package sim

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/forebay-io/forebay/admission"
)

// forebay is the product's own Scheduler.
type forebay struct {
	m    *machine
	s    *admission.Scheduler
	jobs map[*admission.Entry]*job
	now  time.Duration // of the last call of next
	gone []*job

	fullSteps bool
}

// ourMakers make the Scheduler, complete or with a part left out.
var ourMakers = map[string]maker{
	"forebay":             ours(func(*admission.Config) {}),
	"forebay-no-lanes":    ours(func(c *admission.Config) { c.LongPrefill = math.MaxInt64 }),
	"forebay-demote":      ours(demoteLate),
	"forebay-no-fairness": ours(func(c *admission.Config) { c.Quantum = time.Hour }),
	"forebay-full-steps":  fullSteps,
}

// fullSteps makes a Scheduler that believes that every step is full of prefill,
// whatever its decode rows take.
func fullSteps(m *machine, cfg admission.Config) (policy, error) {
	p, err := ours(func(*admission.Config) {})(m, cfg)
	if err != nil {
		return nil, err
	}
	f := p.(*forebay)
	f.fullSteps = true
	f.report(m.report(0), 0)
	return f, nil
}

// demoteLate demotes interactive requests instead of refusing them.
func demoteLate(c *admission.Config) { c.Classes[0].Late = "demote" }

// ours makes the Scheduler of a gateway in front of m, with limits that never bind.
func ours(change func(*admission.Config)) maker {
	return func(m *machine, cfg admission.Config) (policy, error) {
		cfg.RunningSequencesMax = m.SequencesMax
		cfg.WaitingRequestsMax, cfg.WaitingTokensMax, cfg.WaitingBytesMax = waitingMax, waitingMax, waitingMax
		cfg.Classes = slices.Clone(cfg.Classes)
		for i := range cfg.Classes {
			cfg.Classes[i].WaitingRequestsMax, cfg.Classes[i].WaitingBytesMax = waitingMax, waitingMax
		}
		change(&cfg)
		s, err := admission.NewScheduler(cfg)
		if err != nil {
			return nil, err
		}
		s.Report(m.report(0), 0)
		return &forebay{m: m, s: s, jobs: map[*admission.Entry]*job{}}, nil
	}
}

const waitingMax = math.MaxInt32

// bytesToken is about the memory that a waiting prompt takes in the gateway, for
// each of its tokens.
const bytesToken = 5

func (f *forebay) arrive(j *job, now time.Duration) {
	entry, refusal := f.s.Arrive(admission.Demand{
		ID: strconv.Itoa(j.index), Tenant: j.Tenant, Class: j.Class, Route: "chat_completions", Sequences: 1,
		PromptTokens: j.Prompt, UncachedTokens: j.Prompt - f.m.prefixes.match(j), DecodeTokens: j.Asked, Age: now - j.At,
		Bytes: bytesToken * j.Prompt, Blocks: j.Blocks, BlockTokens: BlockTokens,
	}, now)
	if refusal != nil {
		j.ending, j.why = refused, refusal.Reason.String()
		return
	}
	j.entry = entry
	f.jobs[entry] = j
}

func (f *forebay) next(now time.Duration) *job {
	f.now = now
	entry := f.s.Next(now)
	if entry == nil {
		return nil
	}
	j := f.jobs[entry]
	g := entry.Grant()
	j.level, j.key, j.long, j.tokenGoal = g.Level, g.Key, g.Long, g.TokenGoal
	j.demoted, j.predicted = g.Class != j.Class, g.Predicted
	return j
}

func (f *forebay) takeRefused() []*job {
	f.gone = f.gone[:0]
	for _, entry := range f.s.TakeRefused() {
		j := f.jobs[entry]
		j.ending, j.why = refused, entry.Refusal().Reason.String()
		f.gone = append(f.gone, j)
	}
	for _, j := range f.gone {
		f.settle(j, f.now)
	}
	return f.gone
}

func (f *forebay) wakeAt() (time.Duration, bool) { return f.s.WakeAt() }

func (f *forebay) progress(j *job, now time.Duration) { f.s.Progress(j.entry, j.tokens, now) }

func (f *forebay) done(j *job, now time.Duration) { f.settle(j, now) }

func (f *forebay) settle(j *job, now time.Duration) {
	computed := max(0, min(j.computed, j.Prompt)-j.matched)
	f.s.Done(j.entry, admission.Spent{ComputedTokens: computed, CachedTokens: j.matched, CompletionTokens: j.tokens, Whole: j.ending == finished}, now)
	delete(f.jobs, j.entry)
	j.entry = nil
}

func (f *forebay) inside() bool { return false }

func (f *forebay) report(r admission.Report, now time.Duration) {
	if f.fullSteps {
		r.Room.Budget = 0
	}
	f.s.Report(r, now)
}
