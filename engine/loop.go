package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// Invariants of the loop:
//  1. Only its goroutine touches sequences, pages and the model; ahead's touches the
//     grammar of a sequence during a pass.
//  2. A sequence is in running and holds pages (kv is not nil), or in waiting
//     and holds none, or is a choice not forked yet, or is gone.
//  3. The first sequence that is not held, by level and then by age, computes
//     in every step, or another computes its next block: it is always started,
//     its share is never empty, and others are preempted until it has its pages.
//     So all end, level 0 before the rest.
//  4. The events of a step are put before its State, and its State before its
//     wake-ups; pages are free before the End that frees them.

// forwarder is the loop's side of a model; package model has the promises.
type forwarder interface {
	ForwardUnless(stop *atomic.Bool, chunks []model.Chunk) (logits []float32, done bool)
	CopyPage(dst, src int32)
	CopyState(dst, src int32)
	ClearState(slot int32)
}

// loop runs all sequences, step by step. The supply says who holds pages, the
// composer what a step computes, the ledger what it cost.
type loop struct {
	// Fixed at construction.
	info      *wire.Model
	model     forwarder
	width     int // of a row that the model returns
	wholeMax  int // of an encoder, whose prompts are computed whole: most tokens of a step; else 0
	tokenizer *tokenizer.Tokenizer
	set       *kernels.Set // for the sampling
	inbox     *inbox
	published *atomic.Pointer[wire.State]
	grammars  *grammars // for what they have counted
	monitor   *monitor  // of the GPU, or nil

	// Owned by the loop's goroutine.
	supply    supply
	composer  step.Composer
	ledger    ledger
	outbox    outbox
	ahead     ahead
	drawing   drawing
	idleTimer *time.Timer
	scratch   turnScratch
}

// turnScratch is the memory of one turn, which the next one reuses.
type turnScratch struct {
	arrivals, touched []*generation
	candidates        []step.Candidate
	shares            []step.Share
	rows              []row
	chunks            []model.Chunk
	checkpoints       []model.Checkpoint
	siblings          []*sequence
	logits            []float32 // one row, for the sampler to change
}

// row is a sequence's part in the step: its next tokens, of which the last
// logits need logits.
type row struct {
	seq    *sequence
	count  int
	logits int
	decode bool
	stays  bool          // its logits stay on the device, which samples
	cost   float64       // predicted, in nanoseconds
	masks  time.Duration // of its grammar
}

// run is the engine: it turns until the inbox closes.
func (l *loop) run() {
	for l.turn() {
	}
	l.end()
}

// turn is one step, or a rest where there is nothing to compute. It reports
// false when the engine closes.
func (l *loop) turn() bool {
	if !l.takeArrivals() {
		return false
	}
	rows := l.compose()
	if len(rows) == 0 {
		l.rest()
		return true
	}
	logits, done := l.forward(rows)
	if !done {
		l.ledger.giveUp(rows) // an arrival that people wait for goes first
		return true
	}
	l.sample(rows, logits)
	l.report(rows)
	return true
}

// takeArrivals lets new generations in and follows the readers' wishes. It
// reports false when the engine closes.
func (l *loop) takeArrivals() bool {
	l.ledger.tracer.follow(&l.ledger.timer)
	l.supply.pool.ExpirePins(time.Duration(wire.Monotonic()))
	l.supply.tellHoldings(&l.inbox.holdings)
	var closing bool
	m := &l.scratch
	m.arrivals, m.touched, closing = l.inbox.take(m.arrivals[:0], m.touched[:0])
	for _, g := range m.arrivals {
		l.ledger.arrived(g)
		l.supply.wait(g.choices[0])
	}
	for _, g := range m.touched {
		l.supply.startable = true
		l.ledger.change(g)
		g.paused = g.pauseWanted.Load()
		if g.cancelWanted.Load() {
			l.drop(g)
		}
	}
	clear(m.arrivals)
	clear(m.touched)
	return !closing
}

// compose says what the next step computes, with pages for all of it.
func (l *loop) compose() []row {
	l.supply.park()
	for range l.supply.start() {
		l.inbox.started()
	}
	m := &l.scratch
	m.candidates = l.supply.able(m.candidates[:0])
	m.shares = l.composer.Compose(m.shares[:0], m.candidates, l.ledger.fit.Cost(), time.Duration(wire.Monotonic()))
	m.rows = m.rows[:0]
	scored, whole := 0, 0 // prompt tokens whose logits are kept; tokens of whole prompts
	for _, share := range m.shares {
		s, n := l.supply.running[share.Index], share.Tokens
		s.since = l.supply.turns
		if l.wholeMax > 0 {
			if n = s.pending(); whole+n > l.wholeMax {
				continue
			}
			whole += n
		}
		if s.wantsPrompt() {
			n = min(n, max(1, promptRowsMax-scored))
			scored += n
		}
		logits := s.logitRows(n)
		m.rows = append(m.rows, row{seq: s, count: n, logits: logits, decode: s.decoding(), stays: l.drawing.stays(s, logits)})
	}
	return l.supply.provide(m.rows, l.ledger.total.Step+1)
}

// promptRowsMax bounds the log-probabilities that one step computes for
// PromptLogprobs, beside one for each prompt: each costs as much as sampling a
// token.
const promptRowsMax = 64

// forward computes the rows' tokens and returns the logits asked for, in the
// order of the rows. If people wait for none of the rows, the arrival of
// something that they wait for stops it; then it reports false, and what it has
// computed, less than a step, is lost.
func (l *loop) forward(rows []row) (logits []float32, done bool) {
	l.ledger.begin(rows)
	for _, c := range l.supply.copies {
		l.model.CopyPage(c.Dst, c.Src)
		l.ledger.lap(model.KernelKVCopy)
	}
	for _, c := range l.supply.pool.StateCopies() {
		if c.Src == cache.NoState {
			l.model.ClearState(c.Dst)
		} else {
			l.model.CopyState(c.Dst, c.Src)
		}
		l.ledger.lap(model.KernelKVCopy)
	}
	chunks, checkpoints := l.scratch.chunks[:0], l.scratch.checkpoints[:0]
	for _, r := range rows {
		at, first := r.seq.computed(), len(checkpoints)
		for _, c := range r.seq.kv.Checkpoints() {
			checkpoints = append(checkpoints, model.Checkpoint{After: c.Tokens - at, Slot: c.Slot})
		}
		chunks = append(chunks, model.Chunk{
			Tokens: r.seq.tokens[at : at+r.count], Start: at, Pages: r.seq.kv.Pages(), Windows: r.seq.kv.WindowTables(), Logits: r.logits, Decode: r.decode, Stay: r.stays,
			State: r.seq.kv.State(), Checkpoints: checkpoints[first:],
		})
	}
	l.scratch.chunks, l.scratch.checkpoints = chunks, checkpoints
	defer clear(chunks) // keep nothing of an ended sequence alive
	var stop *atomic.Bool
	if !slices.ContainsFunc(rows, func(r row) bool { return r.seq.gen.level == 0 }) {
		stop = &l.inbox.urgent
	}
	l.ahead.begin(rows)
	logits, done = l.model.ForwardUnless(stop, chunks)
	l.ahead.stop()
	if !done {
		return nil, false
	}
	l.ledger.computed(rows)
	for i, r := range rows {
		l.supply.pool.Commit(r.seq.kv, chunks[i].Tokens)
	}
	return logits, true
}

// sample takes the next token of every row that has no more pending tokens.
func (l *loop) sample(rows []row, logits []float32) {
	now, next := l.ledger.sampling(), 0 // next counts the rows of logits
	for i := range rows {
		r := &rows[i]
		var mine []float32
		if !r.stays {
			mine = logits[:r.logits*l.width]
			logits = logits[len(mine):]
		}
		s, g, first := r.seq, r.seq.gen, next
		next += r.logits
		if r.logits == 0 || g.ended {
			continue
		}
		if s.pool != nil {
			l.embed(s, mine, now)
			continue
		}
		if s.wantsPrompt() {
			l.scorePrompt(r, mine)
		}
		if g.ended || s.pending() > 0 {
			continue
		}
		if g.account.timings.FirstToken == 0 {
			l.ledger.firstToken(g, now)
			l.supply.startable = true // its prefix can be shared now
			l.supply.pin(s)
		}
		choices, masks := l.choicesOf(s), l.ledger.step.masks
		for _, c := range choices {
			switch {
			case g.ended:
			case r.stays:
				l.plan(c, first)
			default:
				l.next(c, mine[len(mine)-l.width:], len(choices) > 1)
			}
		}
		r.masks = l.ledger.step.masks - masks
	}
	l.takeDrawn()
	l.ledger.lap(model.KernelSampling)
}

// choicesOf is the sequence alone, or, where the prompt of several choices
// has just been computed, all of them, forked from it.
func (l *loop) choicesOf(s *sequence) []*sequence {
	m := &l.scratch
	clear(m.siblings)
	if s.gen.forked || len(s.gen.choices) == 1 {
		m.siblings = append(m.siblings[:0], s)
		return m.siblings
	}
	s.gen.forked = true
	m.siblings = append(m.siblings[:0], s.gen.choices...)
	for _, c := range m.siblings[1:] {
		l.supply.fork(c, s)
	}
	return m.siblings
}

// report publishes the step, then wakes the readers it touched.
func (l *loop) report(rows []row) {
	l.ledger.end(rows, &l.supply)
	l.composer.Ran(l.ledger.total.StepDuration)
	l.supply.disk.save(l.supply.pool)
	l.ledger.total.Blocks = l.supply.pool.Journal()
	l.publish(len(rows))
	l.outbox.wake()
	clear(rows) // keep nothing of an ended sequence alive
	clear(l.scratch.siblings)
}

// publish makes the counters the State.
func (l *loop) publish(rows int) {
	s, ledger := l.ledger.total, &l.ledger
	s.Cost, s.Room = *ledger.fit.Cost(), l.composer.Limits.Room
	s.RatioMedian, s.RatioHigh = ledger.ratio.Quantile(0.5), ledger.ratio.Quantile(0.9)
	s.Err, s.Model, s.At = l.inbox.refusal(), *l.info, wire.Monotonic()
	s.Running, s.Busiest = rows, ledger.lost.Busiest()
	s.GrammarsCompiled, s.GrammarsFound, s.GrammarsRefused = l.grammars.compiled.Load(), l.grammars.found.Load(), l.grammars.refused.Load()
	l.supply.count(&s)
	l.supply.disk.count(&s)
	l.monitor.count(&s)
	l.published.Store(&s)
}

// heartbeat is how often an idle loop shows that it lives.
const heartbeat = 500 * time.Millisecond

// rest publishes an idle turn and sleeps until something may have changed.
func (l *loop) rest() {
	l.publish(0)
	l.outbox.wake()
	if l.supply.disk.save(l.supply.pool) || l.supply.busy() {
		return
	}
	l.idleTimer.Reset(l.supply.patience(heartbeat))
	slept := wire.Monotonic()
	select {
	case <-l.inbox.wake:
	case <-l.idleTimer.C:
	}
	woke := wire.Monotonic()
	l.ledger.recorder.idle += woke - slept
	l.ledger.lost.Woke(woke)
}

// end gives every live stream its end.
func (l *loop) end() {
	l.ahead.end()
	err := l.inbox.refusal()
	for _, s := range slices.Collect(l.supply.each) { // ending one changes the lists
		if !s.gen.ended {
			l.fail(s.gen, err)
		}
	}
	l.supply.disk.close(l.supply.pool)
	l.ledger.tracer.follow(&l.ledger.timer)
	l.ledger.tracer.end(&l.ledger.timer)
	l.publish(0)
	l.outbox.wake()
}
