package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/internal/cost"
)

// machine is the engine: it holds sequences, composes steps as the engine does, and
// says how long they take. Time is an argument.
//
// Invariants:
//  1. The tokens of all sequences never exceed KVTokens.
//  2. A step computes something, or there is none.
//  3. The tokens that steps computed, and those found in the prefixes, are the
//     prompts and answers of finished requests, and those that were lost.
type machine struct {
	*Engine
	model     cost.Cost // the true one
	fit       cost.Fit  // the one that the engine learns and reports
	composer  step.Composer
	rnd       *rand.Rand
	slow      []slowTime
	nextStall time.Duration
	swing     float64       // the part of the noise that lasts, in deviations
	swingAt   time.Duration // when it was drawn

	sequences []*job // in order of release
	released  int
	kvUsed    int
	reserved  int // tokens that all sequences will have at their ends
	prefixes  *prefixes

	// Of the step that runs, or the last one.
	busy        bool
	steps       uint64
	began, ends time.Duration
	predicted   time.Duration
	spare       time.Duration // how much arrivals may still add to it
	load        cost.Load
	shares      []share

	// Over all.
	worked         time.Duration
	computed, lost int
	matched        int // tokens found in the prefixes; they too may be lost later

	// Scratch.
	ready, waiting []*job
	works          []step.Candidate
	stepShares     []step.Share
}

// share is a sequence's part in a step; its job is nil once that is cancelled.
type share struct {
	job    *job
	tokens int
	cost   float64 // nanoseconds, without the step's base
}

// slowTime is a Slow on the run's clock.
type slowTime struct {
	from, to time.Duration
	factor   float64
}

func newMachine(e *Engine, t *Trace, seed uint64) *machine {
	m := &machine{Engine: e, model: e.cost(), rnd: rand.New(rand.NewPCG(seed, 2)), prefixes: newPrefixes(e.PrefixTokens)}
	m.fit.Restore(m.model)
	m.composer.Limits = e.limits()
	for _, s := range t.Slow {
		from := time.Duration(s.At * float64(t.span()))
		m.slow = append(m.slow, slowTime{from, from + s.For, s.Factor})
	}
	m.nextStall = m.stallGap()
	return m
}

func (m *machine) stallGap() time.Duration {
	if m.StallsMinute == 0 {
		return math.MaxInt64 / 2
	}
	return time.Duration(m.rnd.ExpFloat64() / m.StallsMinute * float64(time.Minute))
}

// take gives the machine a request to work on from the next step on.
func (m *machine) take(j *job) {
	j.order = m.released
	m.released++
	m.reserved += j.Prompt + j.Output
	m.sequences = append(m.sequences, j)
}

// drop forgets a request, which frees what it holds.
func (m *machine) drop(j *job) {
	m.kvUsed -= j.computed
	m.reserved -= j.Prompt + j.Output
	m.sequences = slices.DeleteFunc(m.sequences, func(s *job) bool { return s == j })
	for i := range m.shares {
		if m.shares[i].job == j {
			m.shares[i].job = nil
		}
	}
}

// unstarted are the prompt tokens that are not computed yet, by lane.
func (m *machine) unstarted() (short, long int) {
	for _, j := range m.sequences {
		switch {
		case j.decoding():
		case j.long:
			long += j.pending()
		default:
			short += j.pending()
		}
	}
	return short, long
}

// start begins the next step, if there is something to compute.
func (m *machine) start(now time.Duration) {
	m.makeRoom()
	m.candidates()
	m.works = m.works[:0]
	for i, j := range m.ready {
		m.works = append(m.works, step.Candidate{
			Pending: j.pending(), Context: j.computed, Decode: j.decoding(), Level: j.level, Long: j.long,
			Key: j.key, Arrival: uint64(j.order), Since: j.since, Goal: j.tokenGoal, Index: i,
		})
	}
	m.composer.Limits.TokensMax = min(m.StepTokensMax, m.KVTokens-m.kvUsed)
	m.stepShares = m.composer.Compose(m.stepShares[:0], m.works, m.fit.Cost(), now)
	if m.busy = len(m.stepShares) > 0; !m.busy {
		return
	}
	m.steps++
	m.load, m.shares = cost.Load{}, m.shares[:0]
	own := 0.
	for _, s := range m.stepShares {
		j := m.ready[s.Index]
		cost := m.add(j, s.Tokens)
		own += cost * (j.factor - 1)
		j.since = m.steps
		m.shares = append(m.shares, share{j, s.Tokens, cost * j.factor})
	}
	m.predicted = m.fit.Cost().Step(m.load)
	took := (float64(m.model.Step(m.load)) + own) * m.disturbance(now)
	if now >= m.nextStall {
		took += m.StallMS * 1e6
		m.nextStall = now + m.stallGap()
	}
	m.began, m.ends = now, now+max(1, time.Duration(took))
	m.spare = m.ends - m.began
}

// arrival takes the time of a request's arrival from the step that runs. At least
// half of the machine stays for computing.
func (m *machine) arrival() {
	if !m.busy {
		return
	}
	d := min(m.spare, time.Duration(m.ArrivalMS*1e6))
	m.ends += d
	m.spare -= d
}

// add puts a share into the step's load and returns what it costs alone.
func (m *machine) add(j *job, tokens int) float64 {
	if j.decoding() {
		m.load.AddRow(j.computed)
		return m.model.DecodeRow + m.model.DecodeContext*float64(j.computed)
	}
	m.load.AddChunk(tokens, j.computed)
	return float64(m.model.Prefill(tokens, j.computed, math.MaxInt))
}

// noiseLasts is the time constant of the noise that lasts.
const noiseLasts = time.Second

// disturbance is how much longer than the model says a step takes.
func (m *machine) disturbance(now time.Duration) float64 {
	noise := m.Noise * m.rnd.NormFloat64()
	if m.NoiseMemory > 0 {
		kept := math.Exp(-float64(now-m.swingAt) / float64(noiseLasts))
		m.swing, m.swingAt = kept*m.swing+math.Sqrt(1-kept*kept)*m.rnd.NormFloat64(), now
		noise = noise*math.Sqrt(1-m.NoiseMemory) + m.Noise*m.swing*math.Sqrt(m.NoiseMemory)
	}
	// The mean over the steps is 1. While the noise that lasts is large there are fewer
	// steps, so it has to be larger.
	factor := math.Exp(noise - m.Noise*m.Noise*(1-2*m.NoiseMemory)/2)
	for _, s := range m.slow {
		if now >= s.from && now < s.to {
			factor *= s.factor
		}
	}
	return factor
}

// finish ends the step. It calls charge with what each sequence used, and tell for
// each that got a token.
func (m *machine) finish(charge func(*job, time.Duration), tell func(*job)) {
	took := m.ends - m.began
	m.busy = false
	m.worked += took
	m.composer.Ran(took)
	m.fit.Observe(m.load, took)
	sum := 0.
	for i := range m.shares {
		sum += m.shares[i].cost
	}
	for i := range m.shares {
		s := &m.shares[i]
		if s.job == nil {
			continue
		}
		charge(s.job, time.Duration(float64(took)*s.cost/sum))
		s.job.computed += s.tokens
		m.kvUsed += s.tokens
		m.computed += s.tokens
		if s.job.pending() > 0 {
			continue
		}
		if s.job.tokens == 0 {
			m.prefixes.use(s.job.Blocks)
		}
		s.job.tokens++
		tell(s.job)
	}
}

// makeRoom drops the tokens of the youngest sequences until every decode row, or
// some prefill, has room for one more. They will be computed again.
func (m *machine) makeRoom() {
	for {
		rows, youngest := 0, (*job)(nil)
		for _, j := range m.sequences {
			if j.decoding() {
				rows++
			}
			if j.computed > 0 {
				youngest = j
			}
		}
		if m.kvUsed+max(1, rows) <= m.KVTokens || youngest == nil {
			return
		}
		m.kvUsed -= youngest.computed
		m.lost += youngest.computed
		youngest.computed, youngest.matched = 0, 0
	}
}

// candidates finds the sequences that may compute: those under way, and as many
// new ones, in their order, as there are places and free memory for.
func (m *machine) candidates() {
	m.ready, m.waiting = m.ready[:0], m.waiting[:0]
	free := m.KVTokens - m.kvUsed
	for _, j := range m.sequences {
		if j.computed == 0 {
			m.waiting = append(m.waiting, j)
			continue
		}
		free -= j.pending()
		m.ready = append(m.ready, j)
	}
	slices.SortFunc(m.waiting, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.key, b.key), cmp.Compare(a.order, b.order))
	})
	for _, j := range m.waiting {
		if len(m.ready) >= m.SequencesMax || j.pending() > free {
			return
		}
		if j.tokens == 0 {
			j.computed = m.prefixes.match(j)
			j.matched = j.computed
			m.kvUsed += j.computed
			m.matched += j.computed
			free -= j.computed
		}
		free -= j.pending()
		m.ready = append(m.ready, j)
	}
}

// report is what the engine tells at a step's end.
func (m *machine) report(now time.Duration) admission.Report {
	short, long := m.unstarted()
	r := admission.Report{
		Up: true, At: now, Cost: *m.fit.Cost(), Room: m.limits().Room, KVTokens: m.KVTokens,
		ShortPrefill: short, LongPrefill: long, Sequences: len(m.sequences),
		StepDuration: m.ends - m.began, StepPredicted: m.predicted,
		Blocks: hitmap.News{Changes: m.prefixes.changes},
	}
	m.prefixes.changes = nil
	return r
}
