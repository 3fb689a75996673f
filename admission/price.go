package admission

import "time"

// uncached is how many tokens of e's prompts must be computed.
func (e *Entry) uncached() int { return max(1, e.demand.PromptTokens-e.cached) }

// price says what e costs, by what is cached and expected now, when its first
// token is due, and its key in the order.
func (s *Scheduler) price(e *Entry) {
	v := &s.engine
	e.prefill = v.cost.Prefill(e.uncached(), e.cached, v.chunk)
	p := s.lengths.distribution(&e.demand)
	each := max(1, e.demand.DecodeTokens/max(1, e.demand.Sequences))
	mean, high := p.mean(each), p.quantile(kvQuantile, each)
	e.expect = int(mean) * e.demand.Sequences
	e.answer = mean + s.lengths.doubt()*max(0, float64(high)-mean)
	e.kv = v.memory(e.demand.PromptTokens+high*e.demand.Sequences, e.demand.Sequences)
	if v.kvTokens > 0 {
		e.kv = min(e.kv, v.kvMax()) // a longer answer ends with the context, or is preempted
	}
	e.decode = time.Duration(float64(e.expect) * float64(v.tokenCost(e)))
	e.cost = e.prefill + time.Duration(s.scarcity()*float64(e.decode))
	e.long = e.prefill >= s.cfg.LongPrefill
	e.due = e.dueIn(e.class)
	// A request whose goal is later than the cap may be passed until then.
	most := max(e.class.AgeCap, e.due-e.arrived)
	e.key = max(e.arrived+min(time.Duration(s.cfg.Aging*float64(e.cost)), most), e.behind)
}

// windowEnd is until when e may wait for others to share its first step.
func (e *Entry) windowEnd() time.Duration { return e.arrived + e.class.Window }

// kvQuantile is the share of answers for which the reserved memory is enough.
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

// dueByClient tells that e is due by its client's deadline, before its class's goal.
func (e *Entry) dueByClient() bool {
	return e.demand.Within > 0 && e.due == e.arrived+e.demand.Within
}

// scarcity is how much of the decoding counts in a cost, from 0 to 1: it rises
// while the occupied part of places or memory goes from 0.6 to 0.9. Before that
// only prefill makes others wait.
func (s *Scheduler) scarcity() float64 {
	occupied := float64(s.engine.sequences) / float64(s.places())
	if s.engine.kvTokens > 0 {
		occupied = max(occupied, float64(s.engine.kv)/float64(s.engine.kvTokens))
	}
	return min(1, max(0, (occupied-0.6)/0.3))
}

// revise reserves memory for what the answer of a running e is expected to need
// now.
func (s *Scheduler) revise(e *Entry) {
	each := e.tokens / max(1, e.demand.Sequences)
	most := max(1, e.demand.DecodeTokens/max(1, e.demand.Sequences))
	p := s.lengths.distribution(&e.demand)
	p.condition(each)
	kv := s.engine.memory(e.demand.PromptTokens+max(each+1, p.quantile(kvQuantile, most))*e.demand.Sequences, e.demand.Sequences)
	if s.engine.kvTokens > 0 {
		kv = min(kv, s.engine.kvMax())
	}
	s.engine.reserve(e, kv-e.kv)
	e.class.kv += kv - e.kv
	e.kv = kv
}

// Expected is the 90 % quantile of the number of tokens of an answer to d, over all
// its sequences.
func (s *Scheduler) Expected(d *Demand) int {
	p := s.lengths.distribution(d)
	return p.quantile(0.9, max(1, d.DecodeTokens/max(1, d.Sequences))) * max(1, d.Sequences)
}
