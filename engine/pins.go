package engine

import (
	"context"
	"sync"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/internal/wire"
)

// wireRefusals translates the pool's refusals of pins to the contract's.
var wireRefusals = [...]wire.PinRefusal{
	cache.PinDone:  wire.PinDone,
	cache.PinShort: wire.PinShort,
	cache.PinSalt:  wire.PinTenant,
	cache.PinPages: wire.PinMemory,
	cache.PinCount: wire.PinCount,
}

// pin does what the generation of s, whose prompt has just been computed, asks for its blocks.
func (p *supply) pin(s *sequence) {
	g := s.gen
	asked, prompt := &g.pin, s.tokens[:g.promptTokens]
	switch {
	case !asked.Asked:
	case asked.For == 0:
		p.pool.Unpin(g.salt, prompt)
	default:
		now := time.Duration(wire.Monotonic())
		p.pool.ExpirePins(now)
		tokens, why := p.pool.Pin(g.salt, prompt, now+asked.For, asked.TokensMax)
		g.pinned, g.pinRefused = tokens, wireRefusals[why]
	}
}

// yieldPin ends a pin, so that s gets pages: only for the sequence that must make progress,
// and only where no other can give any.
func (p *supply) yieldPin(s *sequence) bool {
	if s != p.first() || !p.pool.YieldPin() {
		return false
	}
	p.pinsYielded++
	return true
}

// holdingsAsk is a caller's question for what the pages hold.
type holdingsAsk struct {
	most  int
	reply chan cache.Holdings // capacity 1
}

// holdings is the way of such questions to the loop, one at a time.
type holdings struct {
	asking sync.Mutex
	asked  chan *holdingsAsk // capacity 1
}

// Holdings implements wire.HoldingsTeller.
func (e *Engine) Holdings(ctx context.Context, most int) (*wire.Holdings, error) {
	if err := e.inbox.refusal(); err != nil {
		return nil, err
	}
	h := &e.inbox.holdings
	h.asking.Lock()
	defer h.asking.Unlock()
	ask := &holdingsAsk{most: most, reply: make(chan cache.Holdings, 1)}
	h.asked <- ask
	e.inbox.kick()
	select {
	case got := <-ask.reply:
		return wireHoldings(&got, time.Duration(wire.Monotonic())), nil
	case <-e.looped:
		return nil, errClosed()
	case <-ctx.Done():
		select { // the next question must not find this one
		case <-h.asked:
		case <-ask.reply:
		case <-e.looped:
		}
		return nil, wire.Errorf(wire.Canceled, "nobody waits for the holdings any more")
	}
}

// tellHoldings answers the question that waits, if there is one.
func (p *supply) tellHoldings(h *holdings) {
	select {
	case ask := <-h.asked:
		ask.reply <- p.pool.Holdings(ask.most)
	default:
	}
}

func wireHoldings(from *cache.Holdings, now time.Duration) *wire.Holdings {
	to := &wire.Holdings{
		Prefixes: make([]wire.HeldPrefix, len(from.Prefixes)), Salts: make([]wire.SaltPages, len(from.Salts)), Pins: make([]wire.HeldPin, len(from.Pins)),
	}
	for i, p := range from.Prefixes {
		to.Prefixes[i] = wire.HeldPrefix(p)
	}
	for i, s := range from.Salts {
		to.Salts[i] = wire.SaltPages(s)
	}
	for i, p := range from.Pins {
		to.Pins[i] = wire.HeldPin{Salt: p.Salt, Hash: p.Hash, Tokens: p.Tokens, Left: max(0, p.Until-now)}
	}
	return to
}
