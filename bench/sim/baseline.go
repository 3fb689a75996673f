package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/cost"
)

// kvShare is how much of the memory the baselines use.
const kvShare = 0.95

// baseline is a policy of the literature: a waiting list, a rule for the next
// request, and for some a rule for dropping. Baselines know more than a real policy
// could: the output of every request, for its memory, and the engine's state. They
// too release only what the next step can begin (pull).
type baseline struct {
	m       *machine
	rule    rule
	waiting []*job
	gone    []*job

	tenants map[string]*account // vtc
	turns   drr
}

// rule is what a baseline differs by.
type rule struct {
	// less orders the waiting list; nil is by arrival.
	less func(b *baseline, a, c *job) int
	// choose names the next request instead of the head of the list; it may be nil.
	choose func(b *baseline) *job
	// released and token keep the accounts that choose uses.
	released, token func(b *baseline, j *job)
	// late drops a head that would miss its goal even if it began now; predict
	// refuses a newcomer that would miss its goal behind what waits.
	late, predict bool
}

var rules = map[string]rule{
	"fcfs":       {},
	"fcfs-drop":  {late: true},
	"lifo-drop":  {late: true, less: func(_ *baseline, a, c *job) int { return cmp.Compare(c.index, a.index) }},
	"edf":        {less: func(_ *baseline, a, c *job) int { return cmp.Compare(a.due(), c.due()) }},
	"sjf-oracle": {less: func(b *baseline, a, c *job) int { return cmp.Compare(b.m.whole(a), b.m.whole(c)) }},
	"priority":   {less: func(_ *baseline, a, c *job) int { return cmp.Compare(levels[a.Class], levels[c.Class]) }},
	"vtc":        {choose: (*baseline).leastServed, released: chargePrompt, token: chargeToken},
	"drr-wspt":   {less: func(_ *baseline, a, c *job) int { return cmp.Compare(a.Prompt, c.Prompt) }, choose: (*baseline).nextTurn, released: chargeTurn},
	"newcomer":   {predict: true},
}

var levels = map[string]int{interactive: 0, batch: 1, offline: 2}

func newBaseline(m *machine, r rule) *baseline {
	return &baseline{m: m, rule: r, tenants: map[string]*account{}, turns: drr{deficit: map[string]int{}}}
}

func (b *baseline) order(a, c *job) int {
	if b.rule.less != nil {
		if by := b.rule.less(b, a, c); by != 0 {
			return by
		}
	}
	return cmp.Compare(a.index, c.index)
}

func (b *baseline) arrive(j *job, now time.Duration) {
	if b.rule.predict && j.goal > 0 && now+b.ahead()+b.m.prefill(j)+b.fullStep() > j.deadline() {
		j.ending = refused
		return
	}
	at, _ := slices.BinarySearchFunc(b.waiting, j, b.order)
	b.waiting = slices.Insert(b.waiting, at, j)
	if b.rule.token != nil {
		b.join(j)
	}
}

// ahead is how long the machine needs for the waiting prefill, beside its decode
// rows.
func (b *baseline) ahead() time.Duration {
	work := 0.
	for _, j := range b.waiting {
		work += float64(b.m.prefill(j))
	}
	rows := 0.
	for _, j := range b.m.sequences {
		if j.decoding() {
			rows += b.m.model.DecodeRow + b.m.model.DecodeContext*float64(j.computed)
		} else {
			work += float64(b.m.model.Prefill(j.pending(), j.computed, b.m.StepTokensMax))
		}
	}
	full := float64(b.fullStep())
	return time.Duration(work * (full + rows) / full)
}

// fullStep is the time of a step full of prefill, such as the one that runs.
func (b *baseline) fullStep() time.Duration {
	return b.m.model.Step(cost.Load{PrefillTokens: b.m.StepTokensMax})
}

func (b *baseline) next(now time.Duration) *job {
	if b.m.busy {
		return nil
	}
	for len(b.waiting) > 0 {
		j := b.waiting[0]
		if b.rule.choose != nil {
			j = b.rule.choose(b)
		}
		late := b.rule.late && j.goal > 0 && now+b.m.prefill(j) > j.deadline()
		if !late && !b.fits(j) {
			return nil
		}
		b.remove(j)
		if !late {
			if b.rule.released != nil {
				b.rule.released(b, j)
			}
			return j
		}
		j.ending = refused
		b.gone = append(b.gone, j)
	}
	return nil
}

// fits tells whether the next step could begin j.
func (b *baseline) fits(j *job) bool {
	short, long := b.m.unstarted()
	return len(b.m.sequences) < b.m.SequencesMax && short+long < b.m.StepTokensMax &&
		float64(b.m.reserved+j.Prompt+j.Output) <= kvShare*float64(b.m.KVTokens)
}

func (b *baseline) remove(j *job) {
	if at, found := slices.BinarySearchFunc(b.waiting, j, b.order); found {
		b.waiting = slices.Delete(b.waiting, at, at+1)
	}
}

func (b *baseline) takeRefused() []*job {
	gone := b.gone
	b.gone = nil
	return gone
}

func (b *baseline) wakeAt() (time.Duration, bool) { return 0, false }

func (b *baseline) progress(j *job, _ time.Duration) {
	if b.rule.token != nil {
		b.rule.token(b, j)
	}
}

func (b *baseline) done(j *job, _ time.Duration) {
	if !j.started {
		b.remove(j)
		if b.rule.token != nil {
			b.tenants[j.Tenant].here--
		}
	}
}

func (b *baseline) inside() bool { return true }

func (b *baseline) report(admission.Report, time.Duration) {}

// due is j's deadline, or the end of its longest wait where it has none.
func (j *job) due() time.Duration {
	if j.goal == 0 {
		return j.At + j.limit
	}
	return j.deadline()
}

// prefill is the engine time of j's prompt without what is cached.
func (m *machine) prefill(j *job) time.Duration {
	cached := m.prefixes.match(j)
	return m.model.Prefill(j.Prompt-cached, cached, m.StepTokensMax)
}

// whole is the engine time of all of j, which only an oracle knows.
func (m *machine) whole(j *job) time.Duration {
	return time.Duration(float64(m.model.Prefill(j.Prompt, 0, m.StepTokensMax))*j.factor) +
		time.Duration(j.Output)*m.model.Decode(j.Prompt+j.Output/2, m.SequencesMax)
}
