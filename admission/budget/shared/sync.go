package shared

import (
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// dialogue is one call of an account and its answer.
type dialogue struct {
	account *account
	call    *call
	back    budget.Amounts // of the pool, given back or charged by the call
	local   budget.Amounts // the part of back that was decided without Redis
	taken   budget.Amounts // what that was before anything refilled
	asks    []*waiter
}

// start makes calls in the background until no ask waits. b.mu is held.
func (b *account) start() {
	if !b.syncing {
		b.syncing = b.store.begin(b.run)
	}
}

// run makes calls until no ask waits.
func (b *account) run() {
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 && !b.again {
			b.syncing = false
			b.mu.Unlock()
			return
		}
		d := b.open(b.store.clock(), false)
		b.mu.Unlock()
		b.store.sync([]*dialogue{d})
	}
}

// wants says that Redis must be told something. b.mu is held.
func (b *account) wants(now time.Time) bool {
	idle := false
	for k := range b.pool {
		idle = idle || !b.touched && b.pool[k] > 0
	}
	age := now.Sub(b.renewed)
	return b.dirty || idle || b.fall.on || b.metered && age >= meterTicks*b.store.cfg.SyncInterval || b.held != (budget.Amounts{}) && age >= b.store.cfg.Lease/3
}

// open makes the next call. b.mu is held.
func (b *account) open(now time.Time, leave bool) *dialogue {
	d := &dialogue{account: b}
	d.asks = b.waiting[:min(len(b.waiting), asksMax)]
	b.waiting = b.waiting[len(d.asks):]
	part := partOf(b.terms, b.living())
	d.local, d.taken = b.fall.charge(&part, now), b.fall.taken
	var kept budget.Amounts
	// The slice does not cover the waiting asks: they need all that Redis has.
	if len(d.asks) == 0 && b.touched && !leave {
		for k := range kept {
			kept[k] = max(0, min(b.pool[k], b.target[k]))
		}
	}
	d.back = b.pool.Plus(-1, d.local).Plus(-1, kept)
	b.pool = kept
	b.seq++
	held := kept.Plus(1, b.price.OutputAmounts(b.unspent))
	held[budget.Concurrency] += b.running
	d.call = &call{
		key: b.key, ID: b.store.id, Life: b.life, Seq: b.seq, Lease: b.store.cfg.Lease.Milliseconds(), Gateways: max(1, b.store.living()),
		Limit: b.terms.Limit, Rate: b.terms.Rate, Hold: b.terms.Hold,
		Charged: b.charged.Plus(-1, d.back), Held: held, Kept: kept, Was: b.charged, Heard: b.answered, Base: b.charged.Plus(-1, b.held),
		Saw: b.saw, Others: b.others(), Asks: make([]taking, len(d.asks)), Want: b.touched && !leave, Typical: b.typical, Leave: leave,
	}
	for i, w := range d.asks {
		d.call.Asks[i] = taking{w.amounts, w.open}
	}
	b.again, b.touched, b.dirty, b.metered = false, false, false, false
	return d
}

// close takes the answer r; there is none if ok is false.
func (d *dialogue) close(r *reply, ok bool, now time.Time) {
	b := d.account
	b.mu.Lock()
	defer b.mu.Unlock()
	if !ok {
		b.pool = b.pool.Plus(1, d.back).Plus(1, d.local)
		b.move()
	} else {
		if !r.Known && b.held != (budget.Amounts{}) {
			b.store.lose(b.key, now)
		}
		if r.Repaired {
			b.store.log.Warn("budgets: a key held what is no budget; it was replaced", "key", b.key)
		}
		b.charged, b.held, b.pool = r.Charged, r.Held, b.pool.Plus(1, r.Slice).Plus(-1, b.fall.end(d.taken))
		b.saw, b.answered, b.target, b.gateways, b.renewed = &r.Saw, d.call.Seq, r.Target, r.Gateways, now
	}
	for i, w := range d.asks {
		switch granted := ok && r.Verdicts[i][0] == 0; {
		case w.gone && granted:
			b.pool = b.pool.Plus(1, w.amounts)
			b.move()
		case w.gone:
			continue
		case !ok:
			w.verdict = b.fail(&w.scope, &w.amounts, w.client, now)
		case granted:
			b.admit(&w.amounts)
		default:
			rule := budget.Rule(r.Verdicts[i][0] - 1)
			levels := b.known(now)
			w.verdict.refusal = b.terms.Refuse(&w.scope, rule, &w.amounts, &levels, now)
			w.verdict.refusal.RetryAfter = b.waits.For(&b.terms, rule, w.amounts[rule], r.Verdicts[i][1], 1/float64(b.living()), w.client, now)
		}
		w.decided = true
		close(w.done)
	}
}
