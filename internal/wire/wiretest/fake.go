package wiretest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// FakeConfig configures a Fake. Zero fields take their defaults.
type FakeConfig struct {
	// Script chooses what happens to a generation; nil chooses the zero Script
	// for all. It must not change the generation.
	Script func(*wire.Generation) Script
	// Prepare, where set, runs before the fake's own Prepare and may wait on
	// ctx; its error, if any, is the answer.
	Prepare func(ctx context.Context, r *wire.Request) *wire.Error
	// Model is what State reports; zero fields take the fake's own.
	Model wire.Model

	WindowEvents  int           `default:"64"`    // events that may wait in one stream
	PagesTotal    int           `default:"4096"`  // reported, not enforced
	RunningMax    int           `default:"1024"`  // generations that run; the rest wait
	StateInterval time.Duration `default:"100ms"` // longest time between two states
}

// Fake is a scripted engine. Its methods may be called from any goroutine.
type Fake struct {
	cfg   FakeConfig
	wake  chan struct{} // capacity 1: the loop has something to look at
	stop  chan struct{}
	done  chan struct{}
	state atomic.Pointer[wire.State]
	steps *wire.StepLog

	mu      sync.Mutex // before any stream's lock
	works   []*work    // live, in order of arrival
	records []*Record
	byID    map[string]*Record
	err     *wire.Error
	frozen  bool
	closed  bool
	last    wire.State // counters so far
	began   int64
	// stepping is the record of the current step, and after it of the last one.
	stepping wire.StepRecord
	woken    []*wire.Stream
}

// NewFake makes a fake that plays script for every generation.
func NewFake(script Script) *Fake {
	return NewFakeWith(FakeConfig{Script: func(*wire.Generation) Script { return script }})
}

// NewFakeWith makes a fake with its own configuration.
func NewFakeWith(cfg FakeConfig) *Fake {
	conf.Fill(&cfg)
	if cfg.Script == nil {
		cfg.Script = func(*wire.Generation) Script { return Script{} }
	}
	cfg.Model = withFakeModel(cfg.Model)
	f := &Fake{cfg: cfg, steps: wire.NewStepLog(wire.StepLogSteps), began: wire.Monotonic(), byID: map[string]*Record{}, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	f.publish()
	go f.run()
	return f
}

// Close ends every live generation with Unavailable and waits for the loop.
func (f *Fake) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		<-f.done
		return nil
	}
	f.closed = true
	for _, w := range slices.Clone(f.works) {
		f.end(w, errClosed())
	}
	f.publish()
	f.wakeReaders()
	f.mu.Unlock()
	close(f.stop)
	<-f.done
	return nil
}

// SetErr makes State report err; while it is set, Prepare and new
// generations fail with it. Live ones go on.
func (f *Fake) SetErr(err *wire.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.publish()
}

// ChangeBlocks adds changes to the journal of reusable blocks in State.
func (f *Fake) ChangeBlocks(changes ...hitmap.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range changes {
		f.last.Blocks.Add(c)
	}
	f.publish()
}

// Freeze stops the loop and State.At at the end of the next step, as if the engine
// hung; Freeze(false) lets it go on. Cancels still work.
func (f *Fake) Freeze(frozen bool) {
	f.mu.Lock()
	f.frozen = frozen
	f.mu.Unlock()
	f.kick()
}

// State implements wire.Engine.
func (f *Fake) State() *wire.State { return f.state.Load() }

// Generate implements wire.Engine.
func (f *Fake) Generate(g *wire.Generation) *wire.Stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.refusal(); err != nil {
		return wire.FailedStream(g.Notify, err)
	}
	maxTokens, err := check(g, &f.cfg.Model)
	if err != nil {
		return wire.FailedStream(g.Notify, err)
	}
	w := &work{fake: f, g: g, maxTokens: maxTokens, script: f.cfg.Script(g), choices: make([]choice, g.Options.N)}
	w.script.CachedTokens = min(w.script.CachedTokens, len(g.Prompt.Tokens)-1)
	w.stream = wire.NewStream(f.cfg.WindowEvents, g.Notify, w)
	w.timings.Received = wire.Monotonic()
	w.due = time.Now().Add(w.script.FirstDelay)
	w.record = f.record(g.ID)
	w.record.dispatched(g)
	f.works = append(f.works, w)
	f.publish()
	f.kick()
	return w.stream
}

// refusal is why new requests fail, or nil. The caller holds mu.
func (f *Fake) refusal() *wire.Error {
	if f.closed {
		return errClosed()
	}
	return f.err
}

func errClosed() *wire.Error {
	return &wire.Error{Kind: wire.Unavailable, Message: "the engine is closed", RetryAfter: time.Second}
}

func (f *Fake) kick() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run is the fake's loop: a step when some generation is due, a state at
// least every StateInterval.
func (f *Fake) run() {
	defer close(f.done)
	timer := time.NewTimer(f.cfg.StateInterval)
	defer timer.Stop()
	for {
		timer.Reset(f.turn(time.Now()))
		select {
		case <-f.stop:
			return
		case <-f.wake:
		case <-timer.C:
		}
	}
}

// turn makes one step, and returns how long it is until the next is due.
func (f *Fake) turn(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen || f.closed {
		return f.cfg.StateInterval
	}
	pause := f.cfg.StateInterval
	f.stepping.Members, f.stepping.DecodeRows = f.stepping.Members[:0], 0
	began := wire.Monotonic()
	for i, w := range slices.Clone(f.works) {
		if w.paused || i >= f.cfg.RunningMax {
			continue
		}
		if wait := w.due.Sub(now); wait > 0 {
			pause = min(pause, wait)
			continue
		}
		if f.step(w, now) {
			pause = min(pause, max(0, w.due.Sub(now)))
		}
	}
	if len(f.stepping.Members) > 0 {
		f.recordStep(began)
	}
	f.publish()
	f.wakeReaders()
	return pause
}

// wakeReaders wakes the readers of the streams that got events, after the state was
// published.
func (f *Fake) wakeReaders() {
	for _, s := range f.woken {
		s.Wake()
	}
	f.woken = f.woken[:0]
}

// recordStep counts a step and logs its record. The caller holds mu.
func (f *Fake) recordStep(began int64) {
	f.last.Step++
	r := &f.stepping
	r.Gap = time.Duration(began - max(r.Ended, f.began))
	r.Step, r.Began, r.Ended = f.last.Step, began, wire.Monotonic()
	left := time.Duration(r.Ended - r.Began)
	for i := range r.Members {
		r.Members[i].Own = left / time.Duration(len(r.Members)-i)
		left -= r.Members[i].Own
	}
	f.steps.Add(r)
}

// fakeStepTokens is what a Fake reports as the most tokens of a step.
const fakeStepTokens = 512

// publish makes the current counters the State. The caller holds mu, except
// before the loop starts.
func (f *Fake) publish() {
	s := f.last
	s.Err, s.Model, s.At = f.err, f.cfg.Model, wire.Monotonic()
	if f.closed {
		s.Err = errClosed()
	}
	s.Steps = f.steps
	s.PagesTotal, s.Room.TokensMax = f.cfg.PagesTotal, fakeStepTokens
	for i, w := range f.works {
		s.PagesUsed += (w.tokens() + s.Model.PageTokens - 1) / s.Model.PageTokens
		switch {
		case w.paused || w.parked:
			s.Paused += w.live()
		case i >= f.cfg.RunningMax:
			s.Waiting += w.live()
		default:
			s.Running += w.live()
		}
		s.Sequences += w.live()
		if w.timings.Scheduled > 0 || w.paused {
			continue
		}
		if n := len(w.g.Prompt.Tokens); w.g.Long {
			s.LongPrefill += n
		} else {
			s.ShortPrefill += n
		}
	}
	s.PagesFree = max(0, s.PagesTotal-s.PagesUsed)
	f.state.Store(&s)
}
