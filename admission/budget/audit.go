package budget

import "sync/atomic"

// Audit counts reservations since the start. When nothing is open, Reserved is
// Settled + Refunded.
type Audit struct {
	Reserved int64
	Settled  int64
	Refunded int64
	// Refused counts the asks that got no reservation.
	Refused int64
	// Input and Output are the tokens that settled reservations were charged.
	Input, Output int64
	// Fallback counts the reservations that Config.OnFailure decided.
	Fallback int64
	// Lost counts how often the shared store had lost what this process held: its
	// lease had run out, or the store its data.
	Lost int64
	// Dry counts what limits with dry_run would have refused.
	Dry [RuleCount]int64
}

// Counters are an Audit that several goroutines may count in at the same time.
type Counters struct {
	Reserved, Settled, Refunded, Refused, Input, Output, Fallback, Lost atomic.Int64
	dry                                                                 [RuleCount]atomic.Int64
}

// Dry counts what a limit with dry_run would have refused.
func (c *Counters) Dry(r *Refusal) {
	if r.Rule < RuleCount {
		c.dry[r.Rule].Add(1)
	}
}

// End counts a reservation's end.
func (c *Counters) End(e End) {
	if e.Refunded {
		c.Refunded.Add(1)
		return
	}
	c.Settled.Add(1)
	c.Input.Add(int64(e.Input))
	c.Output.Add(int64(e.Output))
}

// Audit reads the counters.
func (c *Counters) Audit() Audit {
	a := Audit{
		Reserved: c.Reserved.Load(), Settled: c.Settled.Load(), Refunded: c.Refunded.Load(), Refused: c.Refused.Load(),
		Input: c.Input.Load(), Output: c.Output.Load(), Fallback: c.Fallback.Load(), Lost: c.Lost.Load(),
	}
	for k := range a.Dry {
		a.Dry[k] = c.dry[k].Load()
	}
	return a
}
