package engine

import (
	"slices"
	"time"

	"github.com/forebay-io/forebay/engine/lost"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

// ledger keeps the accounts of steps: their predicted and measured cost, the
// time of each generation (account.go), the records of steps (record.go) and
// the traces of launches (launches.go). It decides nothing, and belongs to the
// loop's goroutine.
//
// A step calls begin, then giveUp or computed, sampling, and end. Between steps,
// arrived, change, spend, preempted and closed follow a generation.
type ledger struct {
	total    wire.State // counters, and the numbers of the last step
	fit      cost.Fit   // predicts a step's time
	ratio    cost.Ratio // of the measured to the predicted time
	step     stepCost
	timer    model.Timer
	labels   labels
	recorder recorder
	tracer   tracer
	lost     *lost.Watcher // nil where no records are kept
}

// stepCost is the cost of one step. It is kept until the next one begins.
type stepCost struct {
	number            uint64 // 0 until it is computed
	began             int64
	open              bool // computed and not settled
	load              cost.Load
	cost, prefillCost float64        // predicted, of all rows and of those that are prefill
	largest           [2]*generation // the two whose rows cost most
	cpu               time.Duration  // of this process when it began
	masks             time.Duration  // finding what grammars allow
	predicted, used   time.Duration  // undisturbed, and of processors
}

// begin starts the clock of a step.
func (d *ledger) begin(rows []row) {
	d.step = stepCost{began: wire.Monotonic()}
	if d.lost != nil {
		d.lost.Began(d.step.began)
		d.step.cpu, _ = lost.Used()
	}
	if d.recorder.log != nil || d.tracer.running != nil {
		d.timer.Start(d.total.Step+1, d.step.began)
	}
	d.labels.set(rows)
}

// lap counts the time since the last launch as one of a class.
func (d *ledger) lap(class model.KernelClass) { d.timer.Lap(class, -1) }

// giveUp attributes the time of the members of a step that was given up.
func (d *ledger) giveUp(rows []row) {
	now := wire.Monotonic()
	d.timer.Stop(now)
	for i := range rows {
		a := &rows[i].seq.gen.account
		if a.mark < d.step.began {
			a.spend(wire.PartGap, d.step.began)
		}
		a.spend(wire.PartGivenUp, now)
	}
	d.recorder.givenUp += now - d.step.began
	d.lost.GaveUp()
}

// computed counts the rows of a step whose forward is over, and predicts what
// each costs, before their tokens are committed.
func (d *ledger) computed(rows []row) {
	d.total.Step++
	s := &d.step
	s.number, s.open = d.total.Step, true
	base := d.fit.Cost().Step(cost.Load{})
	for i := range rows {
		r := &rows[i]
		var load cost.Load
		r.addTo(&load)
		r.addTo(&s.load)
		// A nanosecond for each token gives a share even to rows that are
		// predicted to cost nothing, as all are before the first step.
		r.cost = float64(d.fit.Cost().Step(load)-base) + float64(r.count)
		s.cost += r.cost
		if !r.decode {
			s.prefillCost += r.cost
		}
		r.seq.gen.account.add(r, s)
	}
	s.rank(rows)
	d.total.StepPrefillTokens, d.total.StepDecodeTokens = s.load.PrefillTokens, s.load.DecodeRows
	d.total.PrefillTokens += uint64(s.load.PrefillTokens)
}

// addTo adds a row, whose tokens are not committed, to a load.
func (r *row) addTo(load *cost.Load) {
	if r.decode {
		load.AddRow(r.seq.computed())
	} else {
		load.AddChunk(r.count, r.seq.computed())
	}
}

// rank finds the two generations whose rows cost most.
func (s *stepCost) rank(rows []row) {
	cost := func(g *generation) float64 { return g.account.share.cost }
	for i := range rows {
		switch g := rows[i].seq.gen; {
		case g == s.largest[0] || g == s.largest[1]:
		case s.largest[0] == nil || cost(g) > cost(s.largest[0]):
			s.largest = [2]*generation{g, s.largest[0]}
		case s.largest[1] == nil || cost(g) > cost(s.largest[1]):
			s.largest[1] = g
		}
	}
}

// largestBeside is the serial of the generation that cost most beside a's own,
// or 0.
func (s *stepCost) largestBeside(a *account) uint64 {
	for _, g := range s.largest {
		if g != nil && &g.account != a {
			return g.serial
		}
	}
	return 0
}

// sampling begins the sampling of a step, now.
func (d *ledger) sampling() (now int64) {
	d.timer.Skip()
	return wire.Monotonic()
}

// masked counts the time in which the tokens were found that g's grammar allows.
func (d *ledger) masked(g *generation, took int64) {
	d.lap(model.KernelMask)
	g.account.share.masks += time.Duration(took)
	d.step.masks += time.Duration(took)
}

// firstToken divides g's time before its first token from the time after it.
func (d *ledger) firstToken(g *generation, now int64) {
	g.account.spendStep(&d.step, now, 0) // masks come after the beginning of the sampling
	g.account.timings.FirstToken = now
	d.countCached(g, g.promptTokens)
}

// countCached counts what of g's prompt was found in the cache. held is the part of
// the prompt that has keys and values.
func (d *ledger) countCached(g *generation, held int) {
	a := &g.account
	a.cached = max(held, a.reached) - a.computed
	d.total.CachedTokens += uint64(a.cached)
}

// end closes the accounts of a step, and learns from it. Its time has the
// sampling in it: readers wait for that too, and it may be long beside the
// forward.
func (d *ledger) end(rows []row, all *supply) {
	ended := wire.Monotonic()
	d.timer.Stop(ended)
	d.total.StepDuration = time.Duration(ended - d.step.began)
	d.settle(rows, all, ended)
	d.lose(rows, ended)
	d.record(rows, all, ended)
	d.tracer.count(&d.timer)
	d.learn(rows)
}

// settle attributes the time of all generations up to the step's end.
func (d *ledger) settle(rows []row, all *supply, now int64) {
	for i := range rows {
		if g := rows[i].seq.gen; !g.ended && g.account.mark < now {
			g.account.spendStep(&d.step, now, d.step.masks)
			g.account.keepSlow(&d.step, now)
		}
	}
	d.step.open, d.step.largest = false, [2]*generation{} // which may have ended
	for s := range all.each {
		if a := &s.gen.account; a.mark < now {
			a.spend(s.left(), now)
		}
	}
}

// learn compares the step's time with the prediction, and corrects the
// prediction. Neither the time of masks counts, nor a step that scores a prompt: it
// is not that of the tokens.
func (d *ledger) learn(rows []row) {
	took := d.total.StepDuration - d.step.masks
	d.total.StepPredicted = d.fit.Cost().Step(d.step.load)
	if scores(rows) {
		return
	}
	d.ratio.Add(took, d.total.StepPredicted)
	d.fit.Observe(d.step.load, took)
}

// scores tells whether the step computed log-probabilities of a prompt.
func scores(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.logits > 1 })
}

// lose finds the time that this process lost up to the step's end.
func (d *ledger) lose(rows []row, ended int64) {
	if d.lost == nil {
		return
	}
	s, r := &d.step, &d.recorder
	now, _ := lost.Used()
	step := lost.Step{Began: s.began, Ended: ended, CPU: now - s.cpu, Gap: r.gap(s.began), GapCPU: s.cpu - r.lastUsed}
	if !scores(rows) {
		step.Load = s.load
	}
	s.used, s.predicted, r.lastUsed = step.CPU, d.lost.Ended(step), now
}

// arrived opens g's account.
func (d *ledger) arrived(g *generation) {
	g.account.timings.Received = wire.Monotonic()
	g.account.mark = g.account.timings.Received
}

// change attributes g's time between two steps, before something of g changes.
func (d *ledger) change(g *generation) {
	if !g.ended {
		g.account.spend(g.between(g.parked.Load()), wire.Monotonic())
	}
}

// spend attributes g's time up to now to one part.
func (d *ledger) spend(g *generation, part wire.Part) { g.account.spend(part, wire.Monotonic()) }

// preempted counts a preemption of g, before its pages are taken.
func (d *ledger) preempted(g *generation) {
	d.change(g)
	g.account.timings.Preempted++
	d.total.Preempted++
	d.recorder.preempted(g.serial)
}

// closed attributes the last stretch of a generation that ends now.
func (d *ledger) closed(g *generation) {
	now, a := wire.Monotonic(), &g.account
	if d.step.open && a.share.step == d.step.number {
		a.spendStep(&d.step, now, d.step.masks)
		a.keepSlow(&d.step, now)
	} else {
		a.spend(g.between(g.parked.Load()), now)
	}
	a.timings.Finished = now
	if a.timings.FirstToken == 0 {
		d.countCached(g, g.choices[0].computed())
	}
}
