package admission

import "time"

// uncached is how many tokens of e's prompts must be computed.
func (e *Entry) uncached() int { return max(1, e.demand.PromptTokens-e.cached) }

// price says what e costs, by what is cached and expected now, and where it
// goes in the order. A key that was once given only rises where the cost does
// not fall.
func (s *Scheduler) price(e *Entry) {
	v := &s.engine
	e.prefill = v.cost.Prefill(e.uncached(), e.cached, v.chunk)
	p := s.lengths.distribution(&e.demand)
	each := max(1, e.demand.DecodeTokens/max(1, e.demand.Sequences))
	e.expect = int(p.mean(each)) * e.demand.Sequences
	e.kv = e.demand.PromptTokens + p.quantile(kvQuantile, each)*e.demand.Sequences
	if v.kvTokens > 0 {
		e.kv = min(e.kv, v.kvMax()) // what does not fit ends at the context's end or is preempted
	}
	e.decode = time.Duration(float64(e.expect) * float64(v.tokenCost(e)))
	e.cost = e.prefill + time.Duration(s.scarcity()*float64(e.decode))
	e.long = e.prefill >= s.cfg.LongPrefill
	e.due = e.dueIn(e.class)
	// Those whose goal lets them wait longer than the cap may be passed until then.
	most := max(e.class.AgeCap, e.due-e.arrived)
	e.key = e.arrived + min(time.Duration(s.cfg.Aging*float64(e.cost)), most)
}

// windowEnd is when e need not wait for others any more to share its first step.
func (e *Entry) windowEnd() time.Duration { return e.arrived + e.class.Window }

// kvQuantile is the share of answers for which the reserved memory suffices.
const kvQuantile = 0.75

// dueIn is when e's first token is due in class k, 0 for no goal.
func (e *Entry) dueIn(k *class) time.Duration {
	if k.FirstTokenGoal == 0 {
		return 0
	}
	goal := k.FirstTokenGoal + time.Duration(k.PrefillSlack*float64(e.prefill))
	if e.demand.Within > 0 {
		goal = min(goal, e.demand.Within)
	}
	return e.arrived + goal
}

// scarcity is how much the length of an answer counts in its cost: as places
// and memory get short, since before that only the prefill makes others wait.
func (s *Scheduler) scarcity() float64 {
	occupied := float64(s.engine.sequences) / float64(s.cfg.RunningSequencesMax)
	if s.engine.kvTokens > 0 {
		occupied = max(occupied, float64(s.engine.kv)/float64(s.engine.kvTokens))
	}
	return min(1, max(0, (occupied-0.6)/0.3))
}

// revise looks again at how long the answer of a running e will be.
func (s *Scheduler) revise(e *Entry) {
	each := e.tokens / max(1, e.demand.Sequences)
	most := max(1, e.demand.DecodeTokens/max(1, e.demand.Sequences))
	p := s.lengths.distribution(&e.demand)
	p.condition(each)
	kv := e.demand.PromptTokens + max(each+1, p.quantile(kvQuantile, most))*e.demand.Sequences
	if s.engine.kvTokens > 0 {
		kv = min(kv, s.engine.kvMax())
	}
	s.engine.reserve(e, kv-e.kv)
	e.class.kv += kv - e.kv
	e.kv = kv
}

// Expected is how many tokens an answer to w is likely not to pass, over all
// its sequences: the 90 % quantile of those like it.
func (s *Scheduler) Expected(w *Demand) int {
	p := s.lengths.distribution(w)
	return p.quantile(0.9, max(1, w.DecodeTokens/max(1, w.Sequences))) * max(1, w.Sequences)
}
