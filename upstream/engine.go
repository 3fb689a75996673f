package upstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream/window"
)

// Engine is a wire.Engine that relays to other servers with the same model. It looks
// for them by itself, and again after each loss, until Close.
type Engine struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	live   sync.WaitGroup // the goroutines of the replicas, and one for each generation
	state  atomic.Pointer[wire.State]
	counts *counter
	trust  trust // in cfg.Counter

	mu       sync.Mutex // guards what follows, the replicas, and the order of states
	replicas []*replica
	why      *wire.Error // why nothing can be generated, nil where it can
	closed   bool
	ready    chan struct{} // closed while why is nil
	isReady  bool
	total    wire.State // counters of the next State

	generations int // that have not ended
}

// New starts to look for the servers and returns at once.
func New(cfg Config) (*Engine, error) {
	if err := conf.Complete("upstream", &cfg); err != nil {
		return nil, err
	}
	servers, err := cfg.all()
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, errors.New("upstream.url names no server")
	}
	e := &Engine{cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), ready: make(chan struct{}), counts: newCounter()}
	e.ctx, e.stop = context.WithCancel(context.Background())
	for i := range servers {
		if err := e.add(&servers[i], ""); err != nil {
			e.stop()
			e.live.Wait()
			return nil, err
		}
	}
	e.tick()
	for i := range servers {
		if host := servers[i].named(); host != "" {
			e.live.Go(func() { e.follow(&servers[i], host) })
		}
	}
	return e, nil
}

// add begins to look for a server, at one address of its host or, for "", at its URL.
func (e *Engine) add(s *Server, address string) error {
	r := &replica{engine: e, cfg: e.cfg, of: s, address: address, name: s.nameAt(address)}
	r.cfg.URL, r.cfg.KeyFile = s.URL, cmp.Or(s.KeyFile, e.cfg.KeyFile)
	r.cfg.SequencesMax, r.cfg.Model = cmp.Or(s.SequencesMax, e.cfg.SequencesMax), cmp.Or(s.Model, e.cfg.Model)
	var err error
	if r.server, err = newServer(&r.cfg, address); err != nil {
		return err
	}
	r.ledger.window = window.New(window.Limits{Start: sequencesUnknown})
	r.ctx, r.stop = context.WithCancel(e.ctx)
	r.followCache()
	e.mu.Lock()
	e.replicas = append(e.replicas, r)
	e.mu.Unlock()
	e.live.Go(r.run)
	e.live.Go(r.watch)
	return nil
}

// Close ends every generation and waits for all goroutines.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	e.live.Wait()
	for _, r := range e.replicas {
		r.server.client.close()
	}
	e.tick()
	return nil
}

var (
	errClosed   = &wire.Error{Kind: wire.Unavailable, Message: "the gateway stops using the upstream", RetryAfter: time.Second}
	errNoServer = &wire.Error{Kind: wire.Unavailable, Message: "the upstream does not answer", RetryAfter: time.Second}
	errDrained  = &wire.Error{Kind: wire.Unavailable, Message: "the upstream is drained by its operator", RetryAfter: 5 * time.Second}
)

// State implements wire.Engine.
func (e *Engine) State() *wire.State { return e.state.Load() }

// Name says which servers these are, for a line to the operator.
func (e *Engine) Name() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for _, r := range e.replicas {
		if name := r.model.what(); r.model != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Addresses are those of the servers, separated by commas.
func (e *Engine) Addresses() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, r := range e.replicas {
		all = append(all, r.name)
	}
	return strings.Join(all, ", ")
}

// WaitReady waits until a server was found. Where ctx or the engine ends first,
// the error says why none was.
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

// used are the servers that requests may go to, those in reserve only where there are
// no others; none of except. The caller holds mu.
func (e *Engine) used(except []*replica) (all []*replica) {
	least := reserves
	for _, r := range e.replicas {
		switch {
		case !r.ready() || r.reserve() > least || slices.Contains(except, r):
		case r.reserve() < least:
			least, all = r.reserve(), []*replica{r}
		default:
			all = append(all, r)
		}
	}
	return all
}

// others tells that a server beside r can be used. The caller holds mu.
func (e *Engine) others(r *replica) bool {
	return slices.ContainsFunc(e.replicas, func(o *replica) bool { return o != r && o.ready() })
}

// fits tells whether r may serve m beside the others: under one name for clients there
// is one model.
func (e *Engine) fits(r *replica, m *model) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.replicas {
		if o != r && o.health.found && e.publicID(o.model) != e.publicID(m) {
			return fmt.Errorf("it serves %s, and %s serves %s; set upstream.model, or upstream.model_id where both are the same model", brief(m.name), o.name, brief(o.model.name))
		}
	}
	return nil
}

func (e *Engine) publicID(m *model) string { return cmp.Or(e.cfg.ModelID, publicName(m.name)) }

// publish makes a new State of all servers. The caller holds mu.
func (e *Engine) publish() {
	s := new(wire.State)
	*s = e.total
	s.At = wire.Monotonic()
	now := time.Duration(s.At)
	s.RatioMedian, s.RatioHigh = 1, 1
	all := e.used(nil)
	switch {
	case e.closed:
		s.Err = errClosed
	case len(all) == 0 && slices.ContainsFunc(e.replicas, func(r *replica) bool { return r.drained }):
		s.Err = errDrained
	case len(all) == 0:
		s.Err = errNoServer
	}
	if e.why = s.Err; (e.why == nil) != e.isReady {
		if e.isReady = e.why == nil; e.isReady {
			close(e.ready)
		} else {
			e.ready = make(chan struct{})
		}
	}
	if last := e.state.Load(); last != nil {
		s.Model = last.Model
	}
	if len(all) > 0 {
		s.Model = e.describe(all)
	}
	for _, r := range e.replicas {
		r.show(s, now, slices.Contains(all, r))
	}
	// Work is done in all of them at once.
	n := float64(max(1, len(all)))
	s.Cost.PrefillToken, s.Cost.Base = s.Cost.PrefillToken/(n*n), s.Cost.Base/(n*n)
	s.Room.TokensMax = max(1, s.Room.TokensMax) + s.Sequences
	e.state.Store(s)
	if e.cfg.OnState != nil {
		e.cfg.OnState(s)
	}
}

// describe is the model of all for the gateway. Its context is the least of theirs.
func (e *Engine) describe(all []*replica) wire.Model {
	m := all[0].model
	d := wire.Model{
		ID: e.publicID(m), Architecture: m.dialect.name, Fingerprint: "upstream-" + m.dialect.name,
		CreatedUnix: m.created, Chat: true, Relays: true,
	}
	for _, r := range all {
		if n := r.contextTokens(r.model); d.ContextTokens == 0 || n < d.ContextTokens {
			d.ContextTokens = n
		}
	}
	return d
}

// show adds the load of r to s, and its places where it is used.
func (r *replica) show(s *wire.State, now time.Duration, used bool) {
	l := &r.ledger
	s.Running += l.running
	s.Paused += l.stopped
	s.Sequences += l.running + l.stopped
	s.ShortPrefill += l.short
	s.LongPrefill += l.long
	places := r.places(now)
	token, step := l.window.Cost()
	s.Upstreams = append(s.Upstreams, r.report(now, places, used))
	if used {
		s.Places += places
		s.Cost.PrefillToken += token
		s.Cost.Base += step
		// Admission lets twice the room of a step be under way: what a step computes,
		// and as much again while it runs. The decode rows are taken off the room.
		s.Room.TokensMax += max(1, l.window.Prefill()/2)
	}
}

// tick publishes a State without news.
func (e *Engine) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish()
}

// current is the first server that can be used.
func (e *Engine) current() (*replica, *model, *wire.Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, errClosed
	}
	if e.why != nil {
		return nil, nil, e.why
	}
	all := e.used(nil)
	if len(all) == 0 {
		return nil, nil, errNoServer
	}
	return all[0], all[0].model, nil
}

// choose returns the server where the first token is expected soonest, of those that
// were not tried. Servers with a free place, that could be reached the last time, go
// first; among those, the ones that are not for overflow. The caller holds mu.
func (e *Engine) choose(v *relayed, n, tokens int, tried []*replica) (best *replica) {
	now := time.Duration(wire.Monotonic())
	least, bestRank := 0., 0
	for _, r := range e.used(tried) {
		view, places := r.ledger.window.View(now), r.places(now)
		token, step := r.ledger.window.Cost()
		// Rows that decode make every step longer.
		wait := (float64(view.Delay) + token*(float64(view.Prefill)+r.uncached(v, tokens)) + 2*step*float64(view.Inside+n)/float64(places)) / r.of.Weight
		rank := 0
		if (view.Inside+n > places && view.Inside > 0) || r.health.unreachable > 0 {
			rank = 2
		}
		if r.of.Use == useOverflow {
			rank++
		}
		if best == nil || rank < bestRank || rank == bestRank && wait < least {
			best, least, bestRank = r, wait, rank
		}
	}
	return best
}

// Prepare implements wire.Engine: it takes the client's body apart and counts its
// prompt.
func (e *Engine) Prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, error) {
	at, m, why := e.current()
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
	n, exact := at.count(ctx, m, r, v)
	context := e.State().Model.ContextTokens
	p := &wire.Prompt{Count: n, Relayed: v, Tokenize: time.Since(began), Room: max(1, context-n)}
	if !exact { // the server has the last word on what fits
		p.Room = max(p.Room, context/8)
	}
	if m.context == 0 && e.cfg.ContextTokens == 0 {
		p.Room = context
	}
	if exact && n >= context || m.dialect.cuts && e.counts.middle(&v.traits) >= context {
		return nil, wire.Errorf(wire.ContextLength, "the prompt has about %d tokens, and the model's context is %d with the answer; shorten the prompt", n, context)
	}
	return p, nil
}

// quickBytes bounds the bodies that are prepared at once: tens of microseconds.
const quickBytes = 16 << 10

// PrepareNow implements wire.Quick, for short prompts that nobody is asked to count.
func (e *Engine) PrepareNow(r *wire.Request) (p *wire.Prompt, err error, ok bool) {
	_, m, why := e.current()
	if why != nil || e.cfg.Counter != nil || len(r.Body) > quickBytes {
		return nil, nil, false
	}
	asks := m.dialect.countText
	if r.Messages != nil {
		asks = m.dialect.countChat
	}
	if asks != "" && (len(r.Body) >= e.cfg.CountBytesMin || !e.counts.sure()) {
		return nil, nil, false
	}
	p, err = e.Prepare(e.ctx, r)
	return p, err, true
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
	if first, ok := bytes.CutPrefix(bytes.TrimSpace(r.Messages), []byte("[")); !ok || bytes.HasPrefix(bytes.TrimSpace(first), []byte("]")) {
		return wire.InvalidParam("messages", "messages must be an array of at least one message")
	}
	return nil
}
