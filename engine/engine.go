package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/lost"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/sample"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/internal/wire"
)

// Engine is one loaded model and the loop that runs it.
type Engine struct {
	// Fixed at construction; safe for any goroutine.
	cfg        Config
	info       wire.Model
	poolTokens int // the longest sequence that all pages together hold
	loaded     loaded
	watcher    *lost.Watcher // nil where no records of steps are kept
	pool       *cache.Pool   // Match, Hasher and Fits only; the loop owns the rest
	grammars   *grammars
	ends       func() []int32 // the model's end tokens
	disk       *diskCache     // there and ids only; the loop owns the rest
	inbox      *inbox
	looped     chan struct{} // the loop has ended
	done       chan struct{} // and the cost is kept

	state atomic.Pointer[wire.State]

	// preparing is held for reading by Prepare, and for writing by Close, so that
	// Close does not free what Prepare uses.
	preparing sync.RWMutex
	closed    bool
}

var (
	_ wire.Engine       = (*Engine)(nil)
	_ wire.LaunchTracer = (*Engine)(nil)

	_ wire.HoldingsTeller = (*Engine)(nil)
)

// New loads a model and starts its loop. The engine must be closed.
func New(cfg Config) (*Engine, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	p, err := load(&cfg)
	if err != nil {
		return nil, err
	}
	if err := withoutFault(func() { p.warm(&cfg) }); err != nil {
		return nil, errors.Join(fmt.Errorf("engine: measure the cost of steps: %w", err), p.close())
	}
	if p.gpu != nil && cfg.Device.AfterFault {
		p.gpu.CheckSteps(cfg.Device.CheckedSteps)
		cfg.Log.Warn("the GPU has failed before: every kernel is waited for at first", "steps", cfg.Device.CheckedSteps)
	}
	p.keepImage()
	e, l, err := assemble(cfg, p)
	if err != nil {
		return nil, err
	}
	if !cfg.StepRecordsOff {
		e.watcher = lost.Watch(os.DirFS("/"), *p.fit.Cost())
		l.ledger.lost = e.watcher
	}
	e.start(func() {
		defer l.onFault(cfg.Fault)
		l.run()
	})
	return e, nil
}

// assemble makes an engine of a loaded model, and the loop that start is to run.
func assemble(cfg Config, p loaded) (*Engine, *loop, error) {
	pool, err := cache.New(cache.Config{Pages: p.pages, PageTokens: cfg.PageTokens, Space: p.info.Fingerprint, States: p.states, StateTokens: cfg.StateTokens, Windows: p.windows, Pins: cfg.pinLimits(&p)})
	if err != nil {
		p.close()
		return nil, nil, err
	}
	p.info.ChoicesMax = min(cfg.ChoicesMax, cfg.SequencesMax)
	e := &Engine{
		cfg: cfg, info: p.info, poolTokens: p.windows.TokensIn(p.pages, cfg.PageTokens),
		loaded: p, pool: pool, inbox: newInbox(&cfg), grammars: newGrammars(cfg.Grammar, p.tokenizer, &p.speech),
		looped: make(chan struct{}), done: make(chan struct{}),
	}
	e.ends = sync.OnceValue(e.findEnds)
	l := &loop{
		info: &e.info, model: p.model, width: p.width, tokenizer: p.tokenizer, set: p.set,
		inbox: e.inbox, published: &e.state, grammars: e.grammars,
		supply:    supply{pool: pool, pageTokens: cfg.PageTokens, placesMax: cfg.SequencesMax},
		composer:  step.Composer{Limits: cfg.stepLimits()},
		ledger:    ledger{fit: p.fit, tracer: tracer{asked: &e.inbox.launchTrace}, recorder: recorder{lastEnded: wire.Monotonic()}},
		idleTimer: time.NewTimer(heartbeat),
		scratch:   turnScratch{logits: make([]float32, p.width)},
	}
	if p.wholeSteps() {
		l.wholeMax = p.batch
	}
	e.disk = openDisk(&e.cfg, &p, pool.Hasher(), e.inbox.kick)
	l.supply.ledger, l.supply.disk, l.monitor = &l.ledger, e.disk, p.monitor
	if !cfg.StepRecordsOff {
		l.ledger.recorder.log = wire.NewStepLog(wire.StepLogSteps)
		l.ledger.total.Steps = l.ledger.recorder.log
	}
	if m, ok := p.model.(*model.Model); ok {
		m.SetTimer(&l.ledger.timer)
		l.drawing.use(m, p.info.VocabTokens)
		l.ledger.labels.model = m
	}
	l.publish(0)
	return e, l, nil
}

// start runs the loop on a goroutine of its own, until the inbox closes.
func (e *Engine) start(run func()) {
	go func() {
		defer close(e.looped)
		run()
		e.watcher.Close()
	}()
	go e.keepCost()
}

// Generate implements wire.Engine.
func (e *Engine) Generate(g *wire.Generation) *wire.Stream {
	own, err := e.newGeneration(g)
	if err == nil {
		err = e.enter(own, g)
	}
	if err != nil {
		return wire.FailedStream(g.Notify, err)
	}
	return own.stream
}

// enter hands a new generation to the loop, with what follows its grammar.
func (e *Engine) enter(own *generation, asked *wire.Generation) *wire.Error {
	g := asked.Options.Grammar
	if g == nil {
		return e.inbox.post(own)
	}
	l := e.leadOf(asked.Prompt, asked.Options.Split, asked.Options.Tools != nil)
	if c := e.grammars.known(g, l); c != nil {
		own.follow(c, !e.grammars.forgets)
		return e.inbox.post(own)
	}
	// It was compiled by Prepare and has left the cache. Compiling it again may take
	// a while, in which the caller must not be held up.
	if !e.preparing.TryRLock() {
		return errClosed()
	}
	if err := e.inbox.refusal(); err != nil {
		e.preparing.RUnlock()
		return err
	}
	go func() {
		defer e.preparing.RUnlock()
		c, err := e.grammars.get(context.Background(), g, l)
		if err == nil {
			own.follow(c, !e.grammars.forgets)
			err = e.inbox.post(own)
		}
		if err != nil {
			own.stream.Put(wire.Event{End: &wire.End{Err: err}})
			own.stream.Wake()
		}
	}()
	return nil
}

// newGeneration checks and copies what came over the wire: it keeps nothing of
// the caller's, and reserves memory so that the loop allocates little.
func (e *Engine) newGeneration(g *wire.Generation) (*generation, *wire.Error) {
	if err := e.inbox.refusal(); err != nil {
		return nil, err
	}
	if err := g.Check(&e.info); err != nil {
		return nil, err
	}
	tokens := g.Prompt.Tokens
	if err := e.checkTokens(tokens); err != nil {
		return nil, err
	}
	room, err := e.room(len(tokens), "prompt")
	if err != nil {
		return nil, err
	}
	if g.Options.MaxTokens > room {
		return nil, wire.InvalidParam("max_tokens", "max_tokens is %d where the prompt's %d tokens leave room for %d", g.Options.MaxTokens, len(tokens), room)
	}
	own := &generation{
		id: g.ID, serial: g.Serial, salt: g.Salt, level: min(g.Level, step.Levels-1), key: g.Key, long: g.Long, tokenGoal: g.TokenGoal, pin: g.Pin, options: g.Options,
		promptTokens: len(tokens), inbox: e.inbox,
	}
	own.options.MaxTokens = cmp.Or(own.options.MaxTokens, room)
	own.account.timings.Arrived = wire.Monotonic()
	own.options.LogitBias, own.options.Stop = slices.Clone(g.Options.LogitBias), slices.Clone(g.Options.Stop)
	own.options.Tools = nil
	own.options.StopTokens = slices.Clone(g.Options.StopTokens)
	own.restriction = e.newRestriction(&own.options)
	own.options.AllowedTokens, own.options.BadWords = nil, nil
	own.options.DRY.Breakers = slices.Clone(g.Options.DRY.Breakers)
	if g.Options.NoCalls {
		e.loaded.speech.forbid(&own.options)
	}
	tools := calls.ReadTools(g.Options.Tools)
	if r := own.options.Grammar; r != nil {
		own.options.Grammar = &wire.Grammar{Kind: r.Kind, Param: r.Param, Calls: r.Calls} // its text may be long
	}
	own.stream = wire.NewStream(max(e.cfg.StreamEventsMax, own.options.N), g.Notify, own)
	if own.options.PromptLogprobs {
		first := wire.TokenLogprob{ID: tokens[0], Bytes: e.loaded.tokenizer.Bytes(tokens[0]), Logprob: float32(math.NaN())}
		own.promptLogprobs = append(make([]wire.TokenLogprob, 0, len(tokens)), first)
	}
	for i := range own.options.N {
		s := e.newSequence(own, i, tokens, e.loaded.speech.parser(own, i, g.Prompt, tools))
		if own.options.Echo {
			s.goOn(g.Prompt.Text)
		}
		own.choices = append(own.choices, s)
	}
	return own, nil
}

// answerTokensAhead is how many tokens of an answer have memory from the start:
// without max_tokens few answers fill the context.
const answerTokensAhead = 4096

func (e *Engine) newSequence(g *generation, choice int, prompt []int32, parser *calls.Parser) *sequence {
	s := &sequence{gen: g, choice: choice, out: newOutput(g.options.Stop, parser, g.options.CallsMax)}
	if parser != nil {
		s.out.thinkMax, s.out.closing = g.options.ReasoningMax, e.loaded.speech.closing
	}
	if g.options.KeepStop {
		s.out.text.Keep()
	}
	s.out.text.Stops(g.options.MinTokens == 0)
	s.tokens = append(make([]int32, 0, len(prompt)+min(g.options.MaxTokens, answerTokensAhead)), prompt...)
	if e.loaded.embedder != nil {
		s.pool = e.loaded.embedder.NewPooler()
		return s
	}
	own := sample.New(e.loaded.set, &g.options, choice, e.info.VocabTokens)
	own.Spell(e.loaded.tokenizer.Bytes)
	own.Prompt(prompt)
	s.sampler = own
	return s
}

// checkTokens refuses ids outside the vocabulary.
func (e *Engine) checkTokens(tokens []int32) *wire.Error {
	for i, id := range tokens {
		if id < 0 || int(id) >= e.info.VocabTokens {
			return wire.InvalidParam("prompt", "token %d at position %d is not in this model's vocabulary; its tokens are 0 to %d", id, i, e.info.VocabTokens-1)
		}
	}
	return nil
}

// State implements wire.Engine.
func (e *Engine) State() *wire.State { return e.state.Load() }

// Drain refuses everything new and waits until all generations have ended. If
// ctx ends first, it returns ctx's error, and Close ends the rest.
func (e *Engine) Drain(ctx context.Context) error {
	e.inbox.shut(errDraining(), false)
	select {
	case <-e.inbox.empty:
		return nil
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends every live stream with Unavailable, waits for the loop and for
// Prepare calls, and frees the model. It may be called twice.
func (e *Engine) Close() error {
	e.inbox.shut(errClosed(), true)
	<-e.done
	e.preparing.Lock()
	defer e.preparing.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	return e.loaded.close()
}
