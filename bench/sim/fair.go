package sim

import "slices"

// account is a tenant's virtual token counter: a prompt token counts 1, a
// generated one 2 (VTC, OSDI 2024).
type account struct {
	counter float64
	here    int // its requests that wait
}

// join lifts the counter of a tenant that had nothing waiting to the smallest of
// the tenants that have, so that a tenant cannot save credit.
func (b *baseline) join(j *job) {
	a := b.tenants[j.Tenant]
	if a == nil {
		a = &account{}
		b.tenants[j.Tenant] = a
	}
	if a.here == 0 {
		least, any := 0., false
		for _, other := range b.tenants {
			if other.here > 0 && (!any || other.counter < least) {
				least, any = other.counter, true
			}
		}
		a.counter = max(a.counter, least)
	}
	a.here++
}

// leastServed is the oldest request of the tenant with the smallest counter.
func (b *baseline) leastServed() *job {
	return slices.MinFunc(b.waiting, func(a, c *job) int {
		if by := b.tenants[a.Tenant].counter - b.tenants[c.Tenant].counter; by != 0 {
			return int(max(-1, min(1, by*1e9)))
		}
		return a.index - c.index
	})
}

func chargePrompt(b *baseline, j *job) {
	b.tenants[j.Tenant].counter += float64(b.uncached(j))
	b.tenants[j.Tenant].here--
}

func chargeToken(b *baseline, j *job) { b.tenants[j.Tenant].counter += 2 }

// drr serves the classes in turns, each with a quantum of uncached tokens.
type drr struct {
	deficit map[string]int
	at      int
}

// turnTokens is a class's quantum.
const turnTokens = 4096

// nextTurn is the first request of the class whose turn it is.
func (b *baseline) nextTurn() *job {
	heads := map[string]*job{}
	for _, j := range b.waiting {
		if heads[j.Class] == nil {
			heads[j.Class] = j
		}
	}
	order := []string{interactive, batch, offline}
	for {
		class := order[b.turns.at]
		j := heads[class]
		if j == nil {
			b.turns.deficit[class] = 0
		} else if b.turns.deficit[class] >= b.uncached(j) {
			return j
		}
		b.turns.at = (b.turns.at + 1) % len(order)
		b.turns.deficit[order[b.turns.at]] += turnTokens
	}
}

func chargeTurn(b *baseline, j *job) { b.turns.deficit[j.Class] -= b.uncached(j) }

func (b *baseline) uncached(j *job) int { return j.Prompt - b.m.prefixes.match(j) }
