package step

// lead composes the leading level: its decode rows, then its prefill.
func (c *Composer) lead(decodes, prefills []Candidate, budget float64) {
	first, oldest := oldestOf(decodes), oldestOf(prefills)
	kept, row := 0, 0 // tokens and rows for the oldest prefill
	if oldest != nil {
		kept, row = min(oldest.Pending, c.least(), c.room), 1
		if first != nil && first.Arrival < oldest.Arrival {
			kept, row = min(kept, c.room-1), min(row, c.rows-1)
		}
		if kept == 0 || row == 0 {
			kept, row, prefills = 0, 0, nil
		}
	}
	c.room, c.rows = c.room-kept, c.rows-row
	if first != nil {
		c.decode(decodes, first, budget)
	}
	c.room, c.rows = c.room+kept, c.rows+row
	if len(prefills) > 0 {
		c.prefill(prefills, oldest, budget, len(decodes) > 0 && decodes[0].Level == 0)
	}
}

// least is the smallest chunk that is worth a step.
func (c *Composer) least() int { return max(1, c.Limits.TokensMin) }

// decode adds the leading level's decode rows: in level 0 all, elsewhere those
// that fit the budget, or aloneStretch times one row if that is more.
func (c *Composer) decode(decodes []Candidate, first *Candidate, budget float64) {
	if c.room < 1 || c.rows < 1 {
		return
	}
	c.give(first, 1)
	budget = max(budget, aloneStretch*c.cost.StepNS(c.load))
	for i := range decodes {
		s := &decodes[i]
		if s == first {
			continue
		}
		if c.room < 1 || c.rows < 1 || s.Level > 0 && c.cost.StepNS(c.load)+c.unit(s) > budget {
			return
		}
		c.give(s, 1)
	}
}

// prefill adds the leading level's prefill, the short lane first. If urgent, decode
// rows of level 0 wait for the step's end.
func (c *Composer) prefill(prefills []Candidate, oldest *Candidate, budget float64, urgent bool) {
	shorts, longs := lanes(prefills)
	var long *Candidate
	if len(longs) > 0 {
		long = &longs[0]
	}
	alone, before := c.cost.StepNS(c.load), c.load.PrefillTokens
	if oldest.Long && oldest != long {
		c.give(oldest, 1) // it waits for the first by key, but is not left out
	}
	left := c.Limits.NS(c.cost, alone, budget)
	most := left // of the long lane
	if urgent {
		most = min(most, c.Limits.LongStretch*alone)
	}
	kept := 0 // for the long lane, while short ones wait
	if long != nil && len(shorts) > 0 {
		share := min(c.cost.TokensIn(min(most, c.Limits.LongShare*left), long.Context), int(c.Limits.LongShare*float64(c.room)))
		kept = max(int(c.longCredit), share)
		if long == oldest {
			kept = max(kept, 1)
		}
		kept = min(kept, long.Pending, max(c.room-1, 1))
	}
	waits := c.short(shorts, oldest, left, long, kept)
	if long == nil {
		return
	}
	n := kept
	if !waits {
		n = max(n, c.cost.TokensIn(min(most, left-(c.cost.StepNS(c.load)-alone)), long.Context), 1)
		if !urgent && len(shorts) == 0 {
			n = max(n, c.least())
		}
	}
	if n = min(n, long.Pending, c.room); n > 0 && c.rows > 0 {
		c.give(long, n)
	} else {
		n = 0
	}
	if !waits {
		c.longCredit = 0
		return
	}
	earned := longLeast * float64(c.load.PrefillTokens-before)
	c.longCredit = min(max(0, c.longCredit+earned-float64(n)), max(earned, float64(c.least())))
}

// short adds the short lane in left nanoseconds, less the time kept for the long
// lane, and reports whether some of the lane still waits. The oldest of all
// prefills keeps its minimal chunk, if it is a short one.
func (c *Composer) short(shorts []Candidate, oldest *Candidate, left float64, long *Candidate, longKept int) (waits bool) {
	alone := c.cost.StepNS(c.load)
	room, rows := 0, 0 // kept for others
	if longKept > 0 {
		left -= c.cost.ChunkNS(longKept, long.Context)
		room, rows = longKept, 1
	}
	kept := 0
	if !oldest.Long {
		kept = min(oldest.Pending, c.least(), c.room)
		room, rows = min(room, c.room-kept), rows+1
	}
	keptTime := c.cost.ChunkNS(kept, oldest.Context)
	for i := range shorts {
		s := &shorts[i]
		least := 0
		if s == oldest {
			least, kept, keptTime, rows = kept, 0, 0, rows-1
		}
		n := c.cost.TokensIn(left-keptTime-(c.cost.StepNS(c.load)-alone), s.Context)
		n = min(max(n, least), s.Pending, c.room-room-kept)
		if n < 1 || c.rows-rows < 1 && s != oldest {
			waits = true
			continue
		}
		c.give(s, n)
		waits = waits || n < s.Pending
	}
	return waits
}

// lanes cuts a level's prefills into the short and the long lane.
func lanes(prefills []Candidate) (shorts, longs []Candidate) {
	n := 0
	for n < len(prefills) && !prefills[n].Long {
		n++
	}
	return prefills[:n], prefills[n:]
}

// oldestOf is the candidate that arrived first, or nil.
func oldestOf(candidates []Candidate) (oldest *Candidate) {
	for i := range candidates {
		if oldest == nil || candidates[i].Arrival < oldest.Arrival {
			oldest = &candidates[i]
		}
	}
	return oldest
}
