package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream/kvevents"
	"github.com/forebay-io/forebay/upstream/window"
)

// replica is one server, with what is known of it and what is there.
type replica struct {
	engine  *Engine
	cfg     Config // the engine's, with its own address
	of      *Server
	address string // that its host's name has, "" for whichever
	name    string // its address, for people
	server  *server
	ctx     context.Context // ends when it is removed
	stop    context.CancelFunc
	cache   *kvevents.Follower // nil where its cache is not followed

	// Guarded by engine.mu:
	model    *model // nil until it was found
	ledger   ledger
	retries  retries
	health   health
	prefixes prefixes
	drained  bool                // by the operator: it gets no new requests
	gone     bool                // its host's name has another address by now
	shared   bool                // others are there too, and it was said
	why      string              // why it is not used, "" where it is
	counts   wire.UpstreamReport // only what counts since the start
}

// ready tells whether r may get requests.
func (r *replica) ready() bool { return r.health.usable() && !r.drained }

// reserve is 0 for a server that is used whenever it is ready; one with more is used
// where none with less is ready.
func (r *replica) reserve() int {
	switch {
	case r.gone:
		return 2
	case r.of.Use == useFallback:
		return 1
	}
	return 0
}

// reserves is more than any.
const reserves = 3

// report is r for people. The caller holds engine.mu.
func (r *replica) report(now time.Duration, places int, used bool) wire.UpstreamReport {
	v, u := r.ledger.window.View(now), r.counts
	u.Group, u.Name, u.Why = r.cfg.group, r.name, r.why
	switch {
	case r.drained && v.Inside > 0:
		u.State = "draining"
	case r.drained:
		u.State = "drained"
	case !r.health.found:
		u.State = "looking"
	case r.health.ejected:
		u.State = "ejected"
	case !used && r.gone:
		u.State = "leaving"
	case !used:
		u.State = "standby"
	case r.health.share(now) < 1:
		u.State = "starting"
	default:
		u.State = "up"
	}
	u.Tokenizer = r.engine.counted()
	if r.model != nil {
		u.Kind = r.model.what()
	}
	u.Inside, u.PlacesExact, u.Prefill, u.Strangers = v.Inside, v.Exact, v.Prefill, v.Strangers
	u.Delay, u.Token, u.Step, u.Heard = v.Delay, v.Token, v.Step, r.ledger.heard
	if used {
		u.Places = places
	}
	if r.cache != nil {
		c := r.cache.Report()
		u.Cache = &wire.UpstreamCache{State: cacheState(&c), Blocks: c.Blocks, BlockTokens: c.Tokens, Missed: c.Gaps, Left: c.Left}
	}
	return u
}

func cacheState(c *kvevents.Report) string {
	switch {
	case c.Whole:
		return "known"
	case c.Live:
		return "in part"
	}
	return "unheard"
}

// what says which server it is: its dialect and version.
func (m *model) what() string {
	if m == nil {
		return ""
	}
	if m.version != "" {
		return m.dialect.name + " " + m.version
	}
	return m.dialect.name
}

// What is assumed of a server that does not say, and the most that is learned.
const (
	contextUnknown   = 8192
	sequencesUnknown = 4
	sequencesMost    = 256
)

func (r *replica) contextTokens(m *model) int {
	return cmp.Or(r.cfg.ContextTokens, m.context, contextUnknown)
}

// limits are what m says of how much it computes at once. What the operator says is
// the most; it may be learned that it is too much.
func (r *replica) limits(m *model) window.Limits {
	l := window.Limits{Start: sequencesUnknown, Most: sequencesMost, StepTokens: cmp.Or(m.dialect.stepTokens, stepTokensUnknown)}
	if n := r.cfg.SequencesMax; n > 0 {
		l.Start, l.Most = n, n
	}
	if m.dialect.alone {
		l.Most = 1
	}
	if n := m.sequences; n > 0 {
		l.Start, l.Exact = min(n, l.Most), true
	}
	return l
}

// places is how many sequences may be there now. The caller holds engine.mu.
func (r *replica) places(now time.Duration) int {
	n := max(1, r.ledger.window.Places()-r.ledger.leaving(now))
	return max(1, int(float64(n)*r.health.share(now)))
}

// run looks after the server: it finds it, asks whether it is well, takes it out of
// use, and finds it again.
func (r *replica) run() {
	e := r.engine
	failures, told := 0, ""
	for r.ctx.Err() == nil {
		if err := r.server.readKey(); err != nil {
			e.log.Warn("the upstream's key cannot be read again; the last one is used", "upstream", r.name, "reason", err)
		}
		err := r.check()
		switch {
		case r.ctx.Err() != nil:
			return
		case err == nil:
			failures, told = 0, ""
		default:
			failures++
			if text := err.Error(); text != told && (failures >= healthConnects || !r.wasFound()) {
				told = text
				e.log.Warn("the upstream does not answer", "upstream", r.name, "reason", text)
			}
			if failures >= healthConnects {
				r.lose()
			}
		}
		r.judge()
		select {
		case <-r.ctx.Done():
		case <-time.After(r.cfg.CheckInterval):
		}
	}
}

func (r *replica) wasFound() bool {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	return r.health.found
}

// check finds the server, or asks the one that was found whether it is well. A slow
// answer is no failure while events of answers come.
func (r *replica) check() error {
	e := r.engine
	began := wire.Monotonic()
	ctx, cancel := context.WithTimeout(r.ctx, max(r.cfg.ConnectLimit, 2*time.Second))
	defer cancel()
	e.mu.Lock()
	m, found := r.model, r.health.found
	e.mu.Unlock()
	if !found {
		m, err := r.server.detect(ctx)
		if err == nil {
			err = r.found(m)
		}
		return err
	}
	err := r.server.ask(ctx, "GET", cmp.Or(m.dialect.health, m.prefix+"/models"), nil, nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && r.ledger.heard > began {
		return nil
	}
	return err
}

// found takes m as the server from now on.
func (r *replica) found(m *model) error {
	e := r.engine
	if err := e.fits(r, m); err != nil {
		return err
	}
	l := r.limits(m)
	e.log.Info("the upstream is found", "upstream", r.name, "is", m.what(), "model", m.name, "context_tokens", r.contextTokens(m), "sequences", l.Start, "sequences_known", l.Exact)
	e.mu.Lock()
	defer e.mu.Unlock()
	again := r.model != nil
	r.model = m
	r.ledger.window.Forget(l)
	r.prefixes, r.shared = prefixes{}, false // it may have been started anew
	e.trust.renew()
	r.health, r.why = health{found: true}, ""
	if again {
		r.health.up = time.Duration(wire.Monotonic())
	}
	e.publish()
	return nil
}

// lose takes the server out of use until it is found again.
func (r *replica) lose() {
	e := r.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	r.health.found, r.why = false, "it does not answer"
	e.publish()
}

// judge ejects a server that does not work, and tries one that was ejected.
func (r *replica) judge() {
	e := r.engine
	now := time.Duration(wire.Monotonic())
	e.mu.Lock()
	h := &r.health
	quiet := time.Duration(0)
	if r.ledger.running > 0 {
		quiet = now - time.Duration(max(r.ledger.heard, r.ledger.since))
	}
	r.eject(h.verdict(quiet, r.ledger.window.View(now).Step, now), now)
	canary := h.ejected && h.found && !r.drained && now >= h.until
	m := r.model
	e.publish()
	e.mu.Unlock()
	if !canary {
		return
	}
	err := r.canary(m)
	now = time.Duration(wire.Monotonic())
	e.mu.Lock()
	defer e.mu.Unlock()
	h.readmit(err == nil, now)
	if err == nil {
		r.why = ""
		e.log.Info("the upstream is used again", "upstream", r.name)
	} else {
		e.log.Warn("the upstream still does not work", "upstream", r.name, "reason", err, "while", h.until-now)
	}
	e.publish()
}

// eject takes the server out of use for a while, unless why is "" or it is the last.
// The caller holds engine.mu.
func (r *replica) eject(why string, now time.Duration) {
	if why == "" || !r.engine.others(r) {
		return
	}
	r.health.eject(now)
	r.counts.Ejected++
	r.why = why
	r.engine.log.Warn("the upstream is not used for a while", "upstream", r.name, "reason", why, "while", r.health.until-now)
}

// canary asks for one token.
func (r *replica) canary(m *model) error {
	ctx, cancel := context.WithTimeout(r.ctx, 2*quietLeast)
	defer cancel()
	body := appendMember([]byte(`{"messages":[{"role":"user","content":"."}],"max_tokens":1,`), "model", quote(m.name))
	var answer struct {
		Choices []json.RawMessage `json:"choices"`
	}
	err := r.server.ask(ctx, "POST", m.prefix+"/chat/completions", append(body, '}'), &answer)
	if err == nil && len(answer.Choices) == 0 {
		err = errors.New("its answer to a canary has no choice")
	}
	return err
}

// judged books how an answer of r ended; taken says that it had begun. The caller holds
// engine.mu.
func (r *replica) judged(err *wire.Error, taken bool, now time.Duration) {
	switch {
	case err == nil:
		r.counts.Served++
		r.health.answer(endServed, now)
	case err.Kind == wire.Internal && !taken:
		r.counts.Failed++
		r.health.answer(endRefused, now)
	case err.Kind == wire.Internal || err.Kind == wire.Unavailable:
		r.counts.Failed++
		r.health.answer(endBroken, now)
	}
}
