package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// Invariants of the loop:
//  1. Only its goroutine touches sequences, pages and the model.
//  2. A sequence is in running and holds pages (kv is not nil), or in waiting
//     and holds none, or is a choice not forked yet, or is gone.
//  3. The first sequence that is not held, by level and then by age, computes
//     in every step, or another computes its next block: it is always started,
//     its share is never empty, and others are preempted until its pages are
//     there. So all ends, level 0 before the rest.
//  4. What a reader may see of a step is put before its State, and its State
//     before its wake-ups; pages are free before the End that frees them.

// forwarder is the loop's side of a model; package model has the promises.
type forwarder interface {
	ForwardUnless(stop *atomic.Bool, chunks []model.Chunk) (logits []float32, whole bool)
	CopyPage(dst, src int32)
}

// loop owns all sequences and the page pool.
type loop struct {
	// Fixed at construction.
	cfg        *Config
	info       *wire.Model
	model      forwarder
	vocab      int // logits of a token
	tokenizer  *tokenizer.Tokenizer
	set        *kernels.Set // for the sampling
	pool       *cache.Pool
	inbox      *inbox
	published  *atomic.Pointer[wire.State]
	promptRows int // most prompt tokens in one step that keep their logits, besides one for each prompt

	// Owned by the loop's goroutine.
	running   []*sequence // by level, then oldest first
	waiting   []*sequence // by level, then by key, then oldest
	startable bool        // something changed for those who wait
	victim    *sequence   // the one preempted last
	turns     uint64
	composer  step.Composer
	fit       cost.Fit
	ratio     cost.Ratio
	total     wire.State // counters, and the last step's numbers
	idleTimer *time.Timer
	timer     model.Timer
	recorder  recorder
	trace     *launchTrace // the one that runs, or nil
	labelled  stepKind     // what the profiler was told last

	// Scratch of one turn.
	arrivals, touched []*generation
	began             int64          // the step's forward
	givenUp, idle     int64          // nanoseconds since the step before
	stepOpen          bool           // computed and not reported
	whole             float64        // predicted cost of the step's rows
	wholePrefill      float64        // and of those that are prefill
	largest           [2]*generation // those that cost most of it
	load              cost.Load
	hopeful           []*sequence
	works             []step.Work
	shares            []step.Share
	rows              []row
	chunks            []model.Chunk
	copies            []cache.Copy
	siblings          []*sequence
	woken             []*generation
	logits            []float32 // one row, for the sampler to change
}

// row is a sequence's part in the step: its next tokens, of which the last
// logits need logits.
type row struct {
	seq    *sequence
	count  int
	logits int
	decode bool
	cost   float64 // predicted, in nanoseconds
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
	rows := l.schedule()
	if len(rows) == 0 {
		l.rest()
		return true
	}
	logits, done := l.forward(rows)
	if !done {
		l.giveUp(rows) // an arrival that people wait for goes first
		return true
	}
	l.sample(rows, logits)
	l.report(rows)
	return true
}

// takeArrivals lets new generations in and follows the readers' wishes. It
// reports false when the engine closes.
func (l *loop) takeArrivals() bool {
	l.followTrace()
	var closing bool
	l.arrivals, l.touched, closing = l.inbox.take(l.arrivals[:0], l.touched[:0])
	for _, g := range l.arrivals {
		g.account.timings.Received = wire.Monotonic()
		g.account.mark = g.account.timings.Received
		l.wait(g.choices[0])
	}
	for _, g := range l.touched {
		l.startable = true
		l.change(g)
		g.paused = g.pauseWanted.Load()
		if g.cancelWanted.Load() {
			l.drop(g)
		}
	}
	clear(l.arrivals)
	clear(l.touched)
	return !closing
}

// schedule says what the next step computes, with pages for all of it.
func (l *loop) schedule() []row {
	l.park()
	l.start()
	l.turns++
	l.works = l.works[:0]
	for i, s := range l.running {
		if s.gen.held() {
			continue
		}
		s.leftOut = wire.PartPrefix
		if len(l.works) > 0 && s.gen.level > l.works[0].Level {
			l.pool.Unclaim(s.kv) // a more urgent one may have claimed its block just now
		}
		if s.decoding() || s.wantsPrompt() || l.pool.Claim(s.kv, s.tokens) {
			l.works = append(l.works, s.work(i))
			s.leftOut = wire.PartHeldBack
		}
	}
	l.shares = l.composer.Compose(l.shares[:0], l.works, l.fit.Cost(), time.Duration(wire.Monotonic()))
	l.rows = l.rows[:0]
	scored := 0 // prompt tokens whose logits are kept
	for _, sh := range l.shares {
		s, n := l.running[sh.Index], sh.Tokens
		s.since = l.turns
		if s.wantsPrompt() {
			n = min(n, max(1, l.promptRows-scored))
			scored += n
		}
		l.rows = append(l.rows, row{seq: s, count: n, logits: s.logitRows(n), decode: s.decoding()})
	}
	return l.supply(l.rows)
}

// forward computes the rows' tokens and returns the logits asked for, in the
// order of the rows. A step without anything that people wait for is given up,
// and reports false, when something of that kind arrives: what it has computed
// is lost, less than a step.
func (l *loop) forward(rows []row) (logits []float32, whole bool) {
	l.load = cost.Load{}
	l.began = wire.Monotonic()
	if l.recorder.log != nil || l.trace != nil {
		l.timer.Start(l.total.Step+1, l.began)
	}
	l.label(rows)
	for _, c := range l.copies {
		l.model.CopyPage(c.Dst, c.Src)
		l.timer.Lap(model.KernelKVCopy, -1)
	}
	l.chunks = l.chunks[:0]
	for _, r := range rows {
		at := r.seq.computed()
		l.chunks = append(l.chunks, model.Chunk{Tokens: r.seq.tokens[at : at+r.count], Start: at, Pages: r.seq.kv.Pages(), Logits: r.logits, Decode: r.decode})
	}
	var stop *atomic.Bool
	if !slices.ContainsFunc(rows, func(r row) bool { return r.seq.gen.level == 0 }) {
		stop = &l.inbox.urgent
	}
	if logits, whole = l.model.ForwardUnless(stop, l.chunks); !whole {
		clear(l.chunks)
		return nil, false
	}

	l.total.Step++
	l.total.StepPrefillTokens, l.total.StepDecodeTokens = 0, 0
	l.stepOpen = true
	l.weigh(rows)
	for i, r := range rows {
		l.note(r)
		l.pool.Commit(r.seq.kv, l.chunks[i].Tokens)
	}
	return logits, true
}

// note counts a row, before its tokens are committed.
func (l *loop) note(r row) {
	if r.decode {
		l.load.AddRow(r.seq.computed())
		l.total.StepDecodeTokens++
	} else {
		l.load.AddChunk(r.count, r.seq.computed())
		l.total.StepPrefillTokens += r.count
		l.total.PrefillTokens += uint64(r.count)
	}
	g, end := r.seq.gen, r.seq.computed()+r.count
	if g.account.timings.FirstToken == 0 {
		g.account.computed += max(0, end-max(r.seq.computed(), g.account.reached))
		g.account.reached = max(g.account.reached, end)
	}
	if g.account.timings.Scheduled == 0 {
		g.account.timings.Scheduled = l.began
	}
	if g.account.stepSeen != l.total.Step {
		g.account.stepSeen = l.total.Step
		g.account.timings.Steps++
	}
}

// sample takes the next token of every row that has come to its end.
func (l *loop) sample(rows []row, logits []float32) {
	now := wire.Monotonic()
	l.timer.Skip()
	for i := range rows {
		r := &rows[i]
		mine := logits[:r.logits*l.vocab]
		logits = logits[r.logits*l.vocab:]
		if len(mine) == 0 || r.seq.gen.ended {
			continue
		}
		if r.seq.wantsPrompt() {
			l.scorePrompt(r, mine)
		}
		if r.seq.gen.ended || r.seq.pending() > 0 {
			continue
		}
		if r.seq.gen.account.timings.FirstToken == 0 {
			l.spendStep(r.seq.gen, now)
			r.seq.gen.account.timings.FirstToken = now
			l.total.CachedTokens += uint64(r.seq.gen.cached())
			l.startable = true // its prefix can be shared now
		}
		last := mine[len(mine)-l.vocab:]
		for _, s := range l.choicesOf(r.seq) {
			if !s.gen.ended {
				l.next(s, last)
			}
		}
	}
	l.timer.Lap(model.KernelSampling, -1)
}

// choicesOf is the sequence alone, or, where the prompt of several choices
// has just been computed, all of them, forked from it.
func (l *loop) choicesOf(s *sequence) []*sequence {
	clear(l.siblings)
	if s.gen.forked || len(s.gen.choices) == 1 {
		l.siblings = append(l.siblings[:0], s)
		return l.siblings
	}
	s.gen.forked = true
	l.siblings = append(l.siblings[:0], s.gen.choices...)
	for _, c := range l.siblings[1:] {
		c.kv, c.inStep = l.pool.Fork(s.kv), s.inStep
		l.admit(c)
	}
	return l.siblings
}

// report publishes the step, then wakes the readers it touched.
func (l *loop) report(rows []row) {
	// Readers wait for the sampling too, which may be dear beside the forward.
	ended := wire.Monotonic()
	l.timer.Stop(ended)
	l.total.StepDuration = time.Duration(ended - l.began)
	l.settle(rows, ended)
	l.recordStep(rows, ended)
	l.countTrace()
	l.learn(rows)
	l.total.Blocks = l.pool.Journal()
	l.publish(len(rows))
	l.wake()
	clear(rows) // keep nothing of an ended sequence alive
	clear(l.chunks)
	clear(l.siblings)
}

// learn compares the step's duration with what was predicted, and corrects
// the prediction. Steps that score a prompt are dear for another reason than
// their tokens.
func (l *loop) learn(rows []row) {
	took := l.total.StepDuration
	l.total.StepPredicted = l.fit.Cost().Step(l.load)
	l.composer.Ran(took)
	if slices.ContainsFunc(rows, func(r row) bool { return r.logits > 1 }) {
		return
	}
	l.ratio.Add(took, l.total.StepPredicted)
	l.fit.Observe(l.load, took)
}

// publish makes the counters the State.
func (l *loop) publish(rows int) {
	s := l.total
	s.Cost, s.StepTokensMax = *l.fit.Cost(), l.composer.Limits.TokensMax
	s.RatioMedian, s.RatioHigh = l.ratio.Quantile(0.5), l.ratio.Quantile(0.9)
	s.Err, s.Model, s.At = l.inbox.refusal(), *l.info, wire.Monotonic()
	pages := l.pool.Counts()
	s.PagesTotal, s.PagesUsed, s.PagesCached, s.PagesFree = pages.Total, pages.Used, pages.Cached, pages.Free
	s.Running = rows
	for _, q := range [...][]*sequence{l.running, l.waiting} {
		for _, c := range q {
			s.Sequences += c.places()
			switch {
			case c.gen.held():
				s.Paused++
			case c.gen.long:
				s.LongPrefill += c.prefill()
			default:
				s.ShortPrefill += c.prefill()
			}
		}
	}
	for _, c := range l.waiting {
		if !c.gen.held() {
			s.Waiting++
		}
	}
	l.published.Store(&s)
}

// wake tells every reader whose stream was put to, once.
func (l *loop) wake() {
	for i, g := range l.woken {
		g.eventsAdded = false
		g.stream.Wake()
		l.woken[i] = nil
	}
	l.woken = l.woken[:0]
}

// heartbeat is how often an idle loop shows that it lives.
const heartbeat = 500 * time.Millisecond

// rest publishes an idle turn and sleeps until something may have changed.
func (l *loop) rest() {
	l.publish(0)
	l.wake()
	if l.busy() {
		return
	}
	l.idleTimer.Reset(heartbeat)
	slept := wire.Monotonic()
	select {
	case <-l.inbox.wake:
	case <-l.idleTimer.C:
	}
	l.idle += wire.Monotonic() - slept
}

// busy reports whether some sequence could work in the next turn.
func (l *loop) busy() bool {
	able := func(s *sequence) bool { return !s.gen.held() }
	return slices.ContainsFunc(l.running, able) || slices.ContainsFunc(l.waiting, able)
}

// end gives every live stream its end.
func (l *loop) end() {
	err := l.inbox.refusal()
	for _, q := range [...][]*sequence{l.running, l.waiting} {
		for _, s := range slices.Clone(q) {
			if !s.gen.ended {
				l.fail(s.gen, err)
			}
		}
	}
	if l.followTrace(); l.trace != nil {
		l.endTrace()
	}
	l.publish(0)
	l.wake()
}
