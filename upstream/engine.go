package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream/window"
)

// Engine is a wire.Engine that relays to another server. It looks for the server by
// itself, and again after each loss, until Close.
type Engine struct {
	cfg    Config
	server *server
	log    *slog.Logger
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	live   sync.WaitGroup // the goroutines of run and watch, and one for each generation
	state  atomic.Pointer[wire.State]
	model  atomic.Pointer[model] // nil until the server was found
	counts *counter

	mu      sync.Mutex // guards what follows, and the order of states
	ledger  ledger
	retries retries
	why     *wire.Error // why nothing can be generated, nil where it can
	closed  bool
	ready   chan struct{} // closed while why is nil
	shared  bool          // others are at the server, and it was said
	isReady bool
	total   wire.State // counters of the next State
}

// New starts to look for the server and returns at once.
func New(cfg Config) (*Engine, error) {
	if err := conf.Complete("upstream", &cfg); err != nil {
		return nil, err
	}
	if cfg.URL == "" {
		return nil, errors.New("upstream.url names no server")
	}
	e := &Engine{cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), ready: make(chan struct{}), counts: newCounter()}
	var err error
	if e.server, err = newServer(&e.cfg); err != nil {
		return nil, err
	}
	e.ledger.window = window.New(window.Limits{Start: sequencesUnknown})
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.lose(wire.Errorf(wire.Unavailable, "the upstream was not found yet"))
	e.live.Go(e.run)
	e.live.Go(e.watch)
	return e, nil
}

// Close ends every generation and waits for all goroutines.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	e.live.Wait()
	e.server.client.CloseIdleConnections()
	e.lose(errClosed)
	return nil
}

var errClosed = wire.Errorf(wire.Unavailable, "the gateway stops using the upstream")

// State implements wire.Engine.
func (e *Engine) State() *wire.State { return e.state.Load() }

// Name says which server it is, for a line to the operator: its dialect and version.
func (e *Engine) Name() string {
	m := e.model.Load()
	if m == nil {
		return "an unknown server"
	}
	if m.version != "" {
		return m.dialect.name + " " + m.version
	}
	return m.dialect.name
}

// WaitReady waits until the server was found. Where ctx or the engine ends first,
// the error says why it was not.
func (e *Engine) WaitReady(ctx context.Context) error {
	for {
		e.mu.Lock()
		ready, why := e.ready, e.why
		e.mu.Unlock()
		if why == nil {
			return nil
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return why
		case <-e.ctx.Done():
			return errClosed
		}
	}
}

// lose makes why the answer to all calls until the server is found.
func (e *Engine) lose(why *wire.Error) {
	told := *why
	told.RetryAfter = max(told.RetryAfter, time.Second)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setWhy(&told)
	e.publish()
}

// setWhy changes whether the engine is ready. The caller holds mu.
func (e *Engine) setWhy(why *wire.Error) {
	e.why = why
	if isReady := why == nil; isReady != e.isReady {
		e.isReady = isReady
		if isReady {
			close(e.ready)
		} else {
			e.ready = make(chan struct{})
		}
	}
}

// found takes m as the server from now on.
func (e *Engine) found(m *model) {
	before := e.model.Swap(m)
	if before == nil || before.name != m.name || before.version != m.version {
		e.log.Info("the upstream is found", "is", e.Name(), "model", m.name, "context_tokens", e.contextTokens(m), "sequences", e.limits(m).Start, "sequences_known", e.limits(m).Exact)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if before == nil || e.why != nil {
		e.ledger.window.Forget(e.limits(m))
		e.shared = false
	}
	e.setWhy(nil)
	e.publish()
}

// What is assumed of a server that does not say.
const (
	contextUnknown   = 8192
	sequencesUnknown = 4
)

func (e *Engine) contextTokens(m *model) int {
	return cmp.Or(e.cfg.ContextTokens, m.context, contextUnknown)
}

// sequencesMost bounds a learned number of sequences.
const sequencesMost = 256

// limits are what m says of how much it computes at once. What the operator says is
// the most; it may be learned that it is too much.
func (e *Engine) limits(m *model) window.Limits {
	l := window.Limits{Start: sequencesUnknown, Most: sequencesMost, StepTokens: cmp.Or(m.dialect.stepTokens, stepTokensUnknown)}
	if n := e.cfg.SequencesMax; n > 0 {
		l.Start, l.Most = n, n
	}
	if n := m.sequences; n > 0 {
		l.Start, l.Exact = min(n, l.Most), true
	}
	return l
}

// describe is m for the gateway.
func (e *Engine) describe(m *model) wire.Model {
	return wire.Model{
		ID: cmp.Or(e.cfg.ModelID, publicName(m.name)), Architecture: m.dialect.name, Fingerprint: "upstream-" + m.dialect.name,
		ContextTokens: e.contextTokens(m), CreatedUnix: m.created, Chat: true, Relays: true,
	}
}

// publish makes a new State of the ledger. The caller holds mu.
func (e *Engine) publish() {
	s := new(wire.State)
	*s = e.total
	s.Err, s.At = e.why, wire.Monotonic()
	if m := e.model.Load(); m != nil {
		s.Model = e.describe(m)
	}
	e.ledger.show(s, time.Duration(s.At))
	e.state.Store(s)
	if e.cfg.OnState != nil {
		e.cfg.OnState(s)
	}
}

// run looks after the server: it finds it, asks whether it is well, and finds it
// again.
func (e *Engine) run() {
	const failuresMost = 3
	failures := 0
	told := ""
	for e.ctx.Err() == nil {
		if err := e.server.readKey(); err != nil {
			e.log.Warn("the upstream's key cannot be read again; the last one is used", "reason", err)
		}
		err := e.check()
		switch {
		case e.ctx.Err() != nil:
			return
		case err == nil:
			failures, told = 0, ""
		case e.model.Load() == nil || failures+1 >= failuresMost:
			if text := reason(err); text != told {
				told = text
				e.log.Warn("the upstream does not answer", "url", e.cfg.URL, "reason", text)
			}
			e.lose(wire.Errorf(wire.Unavailable, "the upstream does not answer"))
			failures = failuresMost
		default:
			failures++
		}
		e.tick()
		select {
		case <-e.ctx.Done():
		case <-time.After(e.cfg.CheckInterval):
		}
	}
}

// check finds the server, or asks the one that was found whether it is well. A slow
// answer is no failure while events of answers come.
func (e *Engine) check() error {
	began := wire.Monotonic()
	ctx, cancel := context.WithTimeout(e.ctx, max(e.cfg.ConnectLimit, 2*time.Second))
	defer cancel()
	m := e.model.Load()
	if e.State().Err != nil {
		m = nil
	}
	if m == nil {
		found, err := e.server.detect(ctx)
		if err == nil {
			e.found(found)
		}
		return err
	}
	err := e.server.ask(ctx, "GET", cmp.Or(m.dialect.health, m.prefix+"/models"), nil, nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.ledger.heard > began {
		return nil
	}
	return err
}

// tick is a turn of the loop without news.
func (e *Engine) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish()
}

// current is the server as it was found.
func (e *Engine) current() (*model, *wire.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	if e.why != nil {
		return nil, e.why
	}
	return e.model.Load(), nil
}

// Prepare implements wire.Engine: it takes the client's body apart and counts its
// prompt.
func (e *Engine) Prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, error) {
	m, why := e.current()
	if why != nil {
		return nil, why
	}
	if ctx.Err() != nil {
		return nil, wire.Errorf(wire.Canceled, "the request was given up")
	}
	if err := checkRequest(r); err != nil {
		return nil, err
	}
	v, err := newRelayed(r)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	n, exact := e.count(ctx, m, r, v)
	context := e.contextTokens(m)
	p := &wire.Prompt{Count: n, Relayed: v, Tokenize: time.Since(began), Room: max(1, context-n)}
	if exact && n >= context || m.dialect.cuts && e.counts.middle(&v.traits) >= context {
		return nil, wire.Errorf(wire.ContextLength, "the prompt has about %d tokens, and the model's context is %d with the answer; shorten the prompt", n, context)
	}
	return p, nil
}

// checkRequest refuses what no server can answer.
func checkRequest(r *wire.Request) *wire.Error {
	given := 0
	for _, is := range [...]bool{r.Messages != nil, r.Text != nil, r.Tokens != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return wire.Errorf(wire.Invalid, "exactly one of messages, text and tokens must be given")
	case r.Tokens != nil && len(r.Tokens) == 0, r.Text != nil && *r.Text == "":
		return wire.InvalidParam("prompt", "the prompt is empty")
	case r.Messages == nil:
		return nil
	}
	var messages []json.RawMessage
	if json.Unmarshal(r.Messages, &messages) != nil || len(messages) == 0 {
		return wire.InvalidParam("messages", "messages must be an array of at least one message")
	}
	return nil
}
