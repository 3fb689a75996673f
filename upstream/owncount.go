package upstream

import (
	"context"
	"sync"

	"github.com/forebay-io/forebay/internal/wire"
)

// Counter counts prompts by the model's own tokenizer and template.
type Counter interface {
	// Tokens returns ok false for what only the server can count, and where ctx ends.
	Tokens(ctx context.Context, r *wire.Request) (tokens []int32, ok bool)
}

// trust says whether a Counter counts as the server does. The first prompts are
// counted by both, where the server can; every usage goes on being compared.
type trust struct {
	mu       sync.Mutex
	compared int
	wrong    [trustWindow]bool
	lost     bool
}

const (
	trustProbes = 20  // prompts that are counted by both at first
	trustWindow = 200 // comparisons that decide
	trustWrong  = 2   // of them that may differ
)

// state tells whether the counter is believed, and whether the server is asked too.
func (t *trust) state() (believed, probing bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.lost, t.compared < trustProbes
}

// compare takes in a count of ours and one of the server, and tells whether that was the
// end of trust.
func (t *trust) compare(ours, theirs int) (lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong[t.compared%trustWindow] = ours != theirs
	t.compared++
	wrong := 0
	for _, w := range t.wrong {
		if w {
			wrong++
		}
	}
	if t.lost || wrong <= trustWrong {
		return false
	}
	t.lost = true
	return true
}

// renew begins anew, since the server may have another model.
func (t *trust) renew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.compared, t.wrong, t.lost = 0, [trustWindow]bool{}, false
}

// counted says how prompts are counted, for the operator: "" without a tokenizer.
func (e *Engine) counted() string {
	if e.cfg.Counter == nil {
		return ""
	}
	if believed, _ := e.trust.state(); believed {
		return "trusted"
	}
	return "differs"
}

// countHere counts a prompt without the server, where that can be believed. Until it is
// known to be right the server is asked too.
func (r *replica) countHere(ctx context.Context, m *model, asked *wire.Request, v *relayed) (tokens int, ok bool) {
	e := r.engine
	if e.cfg.Counter == nil || v.traits[traitMedia] > 0 {
		return 0, false
	}
	believed, probing := e.trust.state()
	if !believed {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CountLimit)
	defer cancel()
	ours, ok := e.cfg.Counter.Tokens(ctx, asked)
	if !ok {
		return 0, false
	}
	n := len(ours)
	if probing {
		if said, theirs, err := r.server.countTokens(ctx, m, v); err == nil {
			e.compare(n, said)
			e.chain(v, theirs, asked.Salt)
			return said, true
		}
	}
	e.chain(v, ours, asked.Salt)
	v.counted = n // to be compared with the usage
	return n, true
}

// compare holds a count of ours to one of the server.
func (e *Engine) compare(ours, theirs int) {
	if e.trust.compare(ours, theirs) {
		e.log.Warn("the upstream counts other tokens than upstream.tokenizer, which is not used any more: is it that of the model there?", "ours", ours, "theirs", theirs)
	}
}
