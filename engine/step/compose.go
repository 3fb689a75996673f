package step

import (
	"cmp"
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// This file decides what one step computes. The caller passes in the sequences
// that could compute, and gets back the number of tokens that each computes.
//
// Words. Level 0 is work that people wait for; a higher level may wait longer. The
// leading level is the lowest one with candidates; the others trail. The first
// is the oldest candidate of the leading level. Time is predicted by cost.Cost.
//
// Invariants:
//  1. If there are candidates there are shares, and the first has one. So the
//     sequence that may take pages from all others always computes.
//  2. All decode rows of a leading level 0 have a share, unless the step has no
//     place for them; then the oldest have.
//  3. Prefill of the leading level stretches the step to its budget, or computes
//     TokensMin tokens of a lane where fewer would fit. In it:
//     - Short prompts go before long ones, and by key within a lane. The oldest
//     short one keeps a minimal chunk.
//     - One long prompt is computed at a time, the first by key; it gives way
//     when admission lets a smaller one in. The oldest continues by a token a
//     step. While short ones wait, the lane takes at most LongShare of the
//     prefill's time, but at least a tenth of the prefill's tokens, over the
//     steps.
//     - Beside decode rows of level 0 it adds at most LongStretch times the time
//     of these rows alone, but at least one token, or its tenth.
//  4. Beside a leading level 0, a trailing level and those before it together
//     add at most Stretch times the time of the leading rows, so it does not
//     delay prefill that people wait for. Level 1 adds at most BatchStretch
//     times the whole leading part. Beside another leading level it has the rest
//     of the budget. It goes beyond that only by credit: each step that leaves
//     some of it out earns it Floor of the step's time, less the time that it
//     got. So over time it has Floor.
//  5. In a trailing level the one that has waited longest goes first, and no row
//     passes one that did not fit, so none starves.
//  6. The shares have at most TokensMax tokens and RowsMax sequences.

// Levels is the number of levels; higher ones count as the last.
const Levels = 8

// Candidate is a sequence that could compute in the next step.
type Candidate struct {
	Pending int           // tokens known but not computed, at least 1
	Context int           // tokens computed before these
	Decode  bool          // the one pending token is the token sampled last
	Level   int           // 0 for what people wait for
	Long    bool          // lane of long prefills
	Key     int64         // the order of prefills within a level, smaller first
	Arrival uint64        // unique; smaller is older
	Since   uint64        // the last step in which it had a share; 0 is none
	Goal    time.Duration // most time between two tokens of a decode row; 0 is none
	Index   int           // the caller's own number for it
}

// Share is the number of tokens that a candidate computes in the step.
type Share struct{ Index, Tokens int }

// place is room for tokens and sequences in a step.
type place struct{ tokens, rows int }

// Limits bound steps. The caller sets all of them; none has a default here.
type Limits struct {
	cost.Room
	RowsMax int // sequences of a step, at least 1

	BackgroundBudget time.Duration // of a step without level 0, soon after one with it
	Stretch          float64       // most that trailing levels add to a leading level 0
	BatchStretch     float64       // the same for level 1, if that is more
	Floor            float64       // least share of time of a trailing level
	LongShare        float64       // most of the prefill's time for the lane of long prefills
	LongStretch      float64       // most that a long prefill adds to decode rows of level 0
}

const (
	// urgentMemory is how long level 0 is expected to come again.
	urgentMemory = 10 * time.Second
	// longLeast is the least share of prefill tokens of the long lane.
	longLeast = 0.1
	// aloneStretch times the time of one row alone bounds a background step, if
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

	// Of the step that is composed, and then until the next one.
	dst        []Share
	cost       *cost.Cost
	load       cost.Load
	room, rows int
	kept       [Levels]place   // kept for the levels that are due
	trailing   [Levels]bool    // some of the level was left out
	spent      [Levels]float64 // nanoseconds that the level got
}

// Compose appends the next step's shares to dst, at most one for each candidate.
// It reorders the candidates.
func (c *Composer) Compose(dst []Share, candidates []Candidate, price *cost.Cost, now time.Duration) []Share {
	c.dst, c.cost, c.load = dst, price, cost.Load{}
	c.room, c.rows = c.Limits.TokensMax, c.Limits.RowsMax
	clear(c.trailing[:])
	clear(c.spent[:])
	if len(candidates) == 0 {
		return dst
	}
	for i := range candidates {
		candidates[i].Level = min(max(candidates[i].Level, 0), Levels-1)
	}
	slices.SortFunc(candidates, compare)
	lead, rest := sameLevel(candidates)
	top := lead[0].Level
	if top == 0 {
		c.urgentSeen, c.urgentAt = true, now
	}
	decodes, prefills := split(lead)
	budget := c.budget(top, decodes, now)
	if !price.Known() {
		c.cost, budget = &blind, tokensBlind
	}
	c.keepOwed(rest)
	c.lead(decodes, prefills, budget)

	led := c.cost.StepNS(c.load)
	allowed := budget - led
	if top == 0 {
		allowed = c.Limits.Stretch * c.rowsTime()
	}
	for len(rest) > 0 {
		var level []Candidate
		level, rest = sameLevel(rest)
		c.releaseOwed(level[0].Level)
		if top == 0 && level[0].Level == 1 {
			allowed -= c.trail(level, max(allowed, c.Limits.BatchStretch*led))
			continue
		}
		allowed -= c.trail(level, max(0, allowed))
	}
	dst, c.dst = c.dst, nil
	return dst
}

// Ran takes the time of the step that was composed last.
func (c *Composer) Ran(took time.Duration) {
	for level := range c.credit {
		if !c.trailing[level] {
			c.credit[level] = 0 // nothing was left out, so nothing is owed
			continue
		}
		earned := c.Limits.Floor * float64(took)
		c.credit[level] = min(max(0, c.credit[level]+earned-c.spent[level]), max(earned, c.creditMax()))
	}
}

// creditMax bounds what a level can spend in one step after it was left out.
func (c *Composer) creditMax() float64 { return float64(c.Limits.Budget) / cost.PatientBudgets }

// rowsTime is the time of the step without its prefill; 0 without rows.
func (c *Composer) rowsTime() float64 {
	if c.load.DecodeRows == 0 {
		return 0
	}
	return c.cost.StepNS(cost.Load{DecodeRows: c.load.DecodeRows, DecodeContext: c.load.DecodeContext})
}

// Load is the load of the step that was composed last.
func (c *Composer) Load() cost.Load { return c.load }

// budget is the time of the leading level's step.
func (c *Composer) budget(top int, decodes []Candidate, now time.Duration) float64 {
	b := c.Limits.Budget
	switch {
	case top > 0 && c.urgentSeen && now-c.urgentAt < urgentMemory:
		b = c.Limits.BackgroundBudget
	case top > 0 || len(decodes) == 0:
		b *= cost.PatientBudgets
	}
	for i := range decodes {
		if g := decodes[i].Goal; g > 0 {
			b = min(b, g)
		}
	}
	return float64(b)
}

// give adds a share of n tokens.
func (c *Composer) give(s *Candidate, n int) {
	c.dst = append(c.dst, Share{s.Index, n})
	c.room -= n
	c.rows--
	if s.Decode {
		c.load.AddRow(s.Context)
	} else {
		c.load.AddChunk(n, s.Context)
	}
}

// unit is the least time that a candidate can take: its row, or one token.
func (c *Composer) unit(s *Candidate) float64 {
	if s.Decode {
		return c.cost.RowNS(s.Context)
	}
	return c.cost.ChunkNS(1, s.Context)
}

// due reports whether a trailing level may compute s on credit.
func (c *Composer) due(s *Candidate) bool {
	owed := c.credit[s.Level]
	return owed > 0 && owed >= min(c.unit(s), c.creditMax())
}

// keepOwed keeps place for the trailing levels that are due, for each its own:
// neither the leading level nor another trailing one takes it. At least half of the
// step stays with the leading level.
func (c *Composer) keepOwed(rest []Candidate) {
	clear(c.kept[:])
	tokensMost, rowsMost := c.room/2, c.rows/2
	for len(rest) > 0 {
		var level []Candidate
		level, rest = sameLevel(rest)
		s := longest(level)
		if !c.due(s) {
			continue
		}
		k := place{rows: 1, tokens: max(1, int(min(c.credit[s.Level]/max(c.unit(s), 1), cost.TokensMost)))}
		if s.Decode {
			k.rows = k.tokens
		}
		k.tokens, k.rows = min(k.tokens, tokensMost), min(k.rows, rowsMost)
		tokensMost, rowsMost = tokensMost-k.tokens, rowsMost-k.rows
		c.room, c.rows = c.room-k.tokens, c.rows-k.rows
		c.kept[s.Level] = k
	}
}

// releaseOwed gives back the place that was kept for a level, when its turn has come.
func (c *Composer) releaseOwed(level int) {
	c.room += c.kept[level].tokens
	c.rows += c.kept[level].rows
}

// trail adds a trailing level as far as ns and its credit allow, and returns the
// time of that. Decode rows come by waiting time. Prefills come by lane and key,
// and the next prefill has its turn among the rows by its waiting time.
func (c *Composer) trail(level []Candidate, ns float64) float64 {
	ns = max(ns, c.credit[level[0].Level])
	before := c.cost.StepNS(c.load)
	head := longest(level)
	beyond := c.due(head)
	decodes, prefills := split(level)
	all := true
	take := func(s *Candidate) bool {
		n, left := s.Pending, ns-(c.cost.StepNS(c.load)-before)
		if !s.Decode {
			n = min(n, c.room, c.cost.TokensIn(left, s.Context))
		}
		if n < 1 || c.unit(s) > left {
			if !beyond || s != head {
				return false
			}
			n = 1
		}
		if c.room < n || c.rows < 1 {
			return false
		}
		c.give(s, n)
		return n == s.Pending
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

// sameLevel cuts off the candidates of the first one's level.
func sameLevel(candidates []Candidate) (level, rest []Candidate) {
	n := 0
	for n < len(candidates) && candidates[n].Level == candidates[0].Level {
		n++
	}
	return candidates[:n], candidates[n:]
}

// split cuts a level into decode rows and prefills.
func split(level []Candidate) (decodes, prefills []Candidate) {
	n := 0
	for n < len(level) && level[n].Decode {
		n++
	}
	return level[:n], level[n:]
}

// longest is the candidate that has waited longest, of a level's decode rows and
// its next prefill.
func longest(level []Candidate) *Candidate {
	decodes, prefills := split(level)
	if len(decodes) == 0 || len(prefills) > 0 && waitedLonger(&prefills[0], &decodes[0]) < 0 {
		return &prefills[0]
	}
	return &decodes[0]
}

func waitedLonger(a, b *Candidate) int {
	return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Arrival, b.Arrival))
}

// compare orders by level. In a level decode rows come first, in level 0 by
// arrival and elsewhere by waiting time; then prefills by lane, key and arrival.
func compare(a, b Candidate) int {
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
