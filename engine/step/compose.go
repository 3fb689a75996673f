package step

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// This file decides what one step computes: the caller hands in what it knows
// of each sequence and gets back how many tokens each may take.
//
// Words. Level 0 is what people wait for, a higher level may wait longer. The
// leading level is the least one with work; the others trail. The first is
// the oldest work of the leading level. Time is predicted by cost.Cost.
//
// Invariants:
//  1. Where there is work there are shares, and the first has one of them: so
//     whoever may take pages from all others is never left out.
//  2. All decode rows of a leading level 0 have a share, unless the step has
//     no place for them; then the oldest do.
//  3. Prefill of the leading level stretches the step to its budget, or takes
//     TokensMin tokens of a lane where less would fit. In it:
//     - short prompts go before long ones, and by key within a lane; the
//     oldest short one keeps a least chunk;
//     - one long prompt is computed at a time, the first by key: another gives
//     way whenever admission lets one in that is smaller. The oldest goes on
//     by a token a step. While short ones are left waiting the lane takes at
//     most LongShare of the prefill's time, and yet a tenth of the prefill's
//     tokens over the steps;
//     - beside decode rows of level 0 it adds at most LongStretch times what
//     those rows take by themselves, and yet one token, or its tenth.
//  4. Beside a leading level 0, a trailing level adds, with those between, at
//     most Stretch times what the leading rows take; so it does not hold up
//     prefill that people wait for. Level 1 adds at most BatchStretch times all
//     of the leading part. Beside another leading level it has what is left of
//     the budget. It goes beyond that only by credit: Floor of the time of the
//     steps that leave some of it out, less what it gets. So over time it has
//     Floor.
//  5. In a trailing level the one that has waited longest goes first, and no
//     row passes one that did not fit: nobody starves.
//  6. The shares hold at most TokensMax tokens and RowsMax sequences.

// Levels is how many levels there are; higher ones count as the last.
const Levels = 8

// Work is one sequence that could compute in the next step.
type Work struct {
	Pending int           // tokens known and not yet computed, at least 1
	Context int           // tokens computed before these
	Decode  bool          // the one pending token is the last that was sampled
	Level   int           // 0 for what people wait for
	Long    bool          // lane of long prefills
	Key     int64         // the order of prefills within a level, smaller first
	Arrival uint64        // unique; smaller is older
	Since   uint64        // number of the step it last had a share in; 0 is none
	Goal    time.Duration // wanted between two tokens of a decode row, 0 for none
	Index   int           // the caller's own number for it
}

// Share is how many tokens a sequence computes in the step.
type Share struct{ Index, Tokens int }

// Limits bound steps. The caller sets all: none has a default here.
type Limits struct {
	TokensMax int // of a step, at least 1
	RowsMax   int // sequences of a step, at least 1
	TokensMin int // prefill of the leading level even when the budget is spent

	Budget           time.Duration // of a step with prefill while people wait for their next token
	BackgroundBudget time.Duration // of a step without level 0, while level 0 was there of late
	Stretch          float64       // what trailing levels may add to a leading level 0
	BatchStretch     float64       // the same for level 1, where that is more
	Floor            float64       // share of time that a trailing level has in any case
	LongShare        float64       // of the prefill's time, for the lane of long prefills
	LongStretch      float64       // what a long prefill may add to decode rows of level 0
}

const (
	// patientBudgets is how many budgets a step takes where nobody waits for its
	// end, since larger steps read the weights less often.
	patientBudgets = 4
	// urgentMemory is for how long level 0 is expected to come again.
	urgentMemory = 10 * time.Second
	// longLeast is the long lane's share of prefill tokens in any case.
	longLeast = 0.1
	// aloneStretch bounds a background step by what one row alone takes, where
	// that is more than the budget: rows share the reading of the weights.
	aloneStretch = 2
	// tokensBlind is the prefill of a step while no cost is known.
	tokensBlind = 64
)

// blind is the cost while none is known: a step's budget is a number of tokens.
var blind = cost.Cost{PrefillToken: 1}

// Composer composes one step after the other. Limits may change between them.
type Composer struct {
	Limits Limits

	urgentSeen bool
	urgentAt   time.Duration
	credit     [Levels]float64 // nanoseconds owed to a trailing level
	longCredit float64         // tokens owed to the long lane

	// The step in composition, and after it the last one.
	dst        []Share
	cost       *cost.Cost
	load       cost.Load
	room, rows int
	trailing   [Levels]bool    // it left some of the level out
	spent      [Levels]float64 // and gave the level so much
}

// Compose appends the next step's shares to dst, at most one for each work.
// It reorders works.
func (c *Composer) Compose(dst []Share, works []Work, price *cost.Cost, now time.Duration) []Share {
	c.dst, c.cost, c.load = dst, price, cost.Load{}
	c.room, c.rows = c.Limits.TokensMax, c.Limits.RowsMax
	clear(c.trailing[:])
	clear(c.spent[:])
	if len(works) == 0 {
		return dst
	}
	for i := range works {
		works[i].Level = min(max(works[i].Level, 0), Levels-1)
	}
	slices.SortFunc(works, compareWork)
	lead, rest := sameLevel(works)
	top := lead[0].Level
	if top == 0 {
		c.urgentSeen, c.urgentAt = true, now
	}
	decodes, prefills := split(lead)
	budget := c.budget(top, decodes, now)
	if !price.Known() {
		c.cost, budget = &blind, tokensBlind
	}
	tokens, rows := c.owed(rest)
	c.room, c.rows = c.room-tokens, c.rows-rows
	c.lead(decodes, prefills, budget)
	c.room, c.rows = c.room+tokens, c.rows+rows

	led := c.cost.StepNS(c.load)
	allowed := budget - led
	if top == 0 {
		allowed = c.Limits.Stretch * c.rowsTime()
	}
	for len(rest) > 0 {
		var level []Work
		level, rest = sameLevel(rest)
		if top == 0 && level[0].Level == 1 {
			allowed -= c.trail(level, max(allowed, c.Limits.BatchStretch*led))
			continue
		}
		allowed -= c.trail(level, max(0, allowed))
	}
	dst, c.dst = c.dst, nil
	return dst
}

// Ran says how long the step took that was composed last.
func (c *Composer) Ran(took time.Duration) {
	for level := range c.credit {
		if !c.trailing[level] {
			c.credit[level] = 0 // nothing was left out: nothing is owed
			continue
		}
		earned := c.Limits.Floor * float64(took)
		c.credit[level] = min(max(0, c.credit[level]+earned-c.spent[level]), max(earned, c.creditMax()))
	}
}

// creditMax bounds what a level can spend in one step after it was left out.
func (c *Composer) creditMax() float64 { return float64(c.Limits.Budget) / patientBudgets }

// rowsTime is what the step takes without its prefill, nothing without rows.
func (c *Composer) rowsTime() float64 {
	if c.load.DecodeRows == 0 {
		return 0
	}
	return c.cost.StepNS(cost.Load{DecodeRows: c.load.DecodeRows, DecodeContext: c.load.DecodeContext})
}

// Load is what the step that was composed last computes.
func (c *Composer) Load() cost.Load { return c.load }

// budget is the time of the leading level's step.
func (c *Composer) budget(top int, decodes []Work, now time.Duration) float64 {
	b := c.Limits.Budget
	switch {
	case top > 0 && c.urgentSeen && now-c.urgentAt < urgentMemory:
		b = c.Limits.BackgroundBudget
	case top > 0 || len(decodes) == 0:
		b *= patientBudgets
	}
	for i := range decodes {
		if g := decodes[i].Goal; g > 0 {
			b = min(b, g)
		}
	}
	return float64(b)
}

// give adds a share of n tokens.
func (c *Composer) give(w *Work, n int) {
	c.dst = append(c.dst, Share{w.Index, n})
	c.room -= n
	c.rows--
	if w.Decode {
		c.load.AddRow(w.Context)
	} else {
		c.load.AddChunk(n, w.Context)
	}
}

// unit is the least that a work can take: its row, or one token.
func (c *Composer) unit(w *Work) float64 {
	if w.Decode {
		return c.cost.RowNS(w.Context)
	}
	return c.cost.ChunkNS(1, w.Context)
}

// due tells whether a trailing level may go beyond what is allowed for w.
func (c *Composer) due(w *Work) bool {
	owed := c.credit[w.Level]
	return owed > 0 && owed >= min(c.unit(w), c.creditMax())
}

// owed is the place to keep for trailing levels that are due; at least half
// of the step stays with the leading one.
func (c *Composer) owed(rest []Work) (tokens, rows int) {
	for len(rest) > 0 {
		var level []Work
		level, rest = sameLevel(rest)
		if w := longest(level); c.due(w) {
			n := max(1, int(min(c.credit[w.Level]/max(c.unit(w), 1), cost.TokensMost)))
			tokens, rows = tokens+n, rows+1
			if w.Decode {
				rows += n - 1
			}
		}
	}
	return min(tokens, c.room/2), min(rows, c.rows/2)
}

// trail adds what a trailing level may take in ns and by its credit, and
// returns how much that is. Work comes by decode rows, longest waiting first,
// and then prefills by lane and key; these stand in the row as one.
func (c *Composer) trail(level []Work, ns float64) float64 {
	ns = max(ns, c.credit[level[0].Level])
	before := c.cost.StepNS(c.load)
	head := longest(level)
	beyond := c.due(head)
	decodes, prefills := split(level)
	all := true
	take := func(w *Work) bool {
		n, left := w.Pending, ns-(c.cost.StepNS(c.load)-before)
		if !w.Decode {
			n = min(n, c.room, c.cost.TokensIn(left, w.Context))
		}
		if n < 1 || c.unit(w) > left {
			if !beyond || w != head {
				return false
			}
			n = 1
		}
		if c.room < n || c.rows < 1 {
			return false
		}
		c.give(w, n)
		return n == w.Pending
	}
	for len(decodes)+len(prefills) > 0 && all {
		if len(decodes) == 0 || len(prefills) > 0 && waitedLonger(&prefills[0], &decodes[0]) < 0 {
			all, prefills = take(&prefills[0]), prefills[1:]
		} else {
			all, decodes = take(&decodes[0]), decodes[1:]
		}
	}
	spent := c.cost.StepNS(c.load) - before
	c.trailing[head.Level], c.spent[head.Level] = !all, spent
	return spent
}

// sameLevel cuts the works of the first one's level off.
func sameLevel(works []Work) (level, rest []Work) {
	n := 0
	for n < len(works) && works[n].Level == works[0].Level {
		n++
	}
	return works[:n], works[n:]
}

// split cuts a level into decode rows and prefills.
func split(level []Work) (decodes, prefills []Work) {
	n := 0
	for n < len(level) && level[n].Decode {
		n++
	}
	return level[:n], level[n:]
}

// longest is who has waited longest among a level's decode rows and its next
// prefill.
func longest(level []Work) *Work {
	decodes, prefills := split(level)
	if len(decodes) == 0 || len(prefills) > 0 && waitedLonger(&prefills[0], &decodes[0]) < 0 {
		return &prefills[0]
	}
	return &decodes[0]
}

func waitedLonger(a, b *Work) int {
	return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Arrival, b.Arrival))
}

// compareWork puts levels in order; in each the decodes, oldest first in level
// 0 and longest waiting first elsewhere; then prefills by lane, key and arrival.
func compareWork(a, b Work) int {
	switch {
	case a.Level != b.Level:
		return cmp.Compare(a.Level, b.Level)
	case a.Decode != b.Decode:
		if a.Decode {
			return -1
		}
		return 1
	case a.Decode && a.Level == 0:
		return cmp.Compare(a.Arrival, b.Arrival)
	case a.Decode:
		return waitedLonger(&a, &b)
	case a.Long != b.Long:
		if b.Long {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Arrival, b.Arrival))
}
