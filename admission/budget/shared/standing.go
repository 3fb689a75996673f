package shared

import (
	"context"
	"errors"

	"github.com/forebay-io/forebay/admission/budget"
)

// Holders is part of budget.Store.
func (s *Store) Holders(most int) []budget.Holder {
	return s.books.Holders(most, func(b *account) budget.Limits {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.limits
	})
}

// Standings is part of budget.Store: what Redis has, where slices that gateways hold
// count as used.
func (s *Store) Standings(ctx context.Context, holders []budget.Holder) ([]budget.States, error) {
	all := make([]budget.States, len(holders))
	for begin := 0; begin < len(holders); begin += pipelineMax {
		end := min(begin+pipelineMax, len(holders))
		if err := s.readInto(ctx, all[begin:end], holders[begin:end]); err != nil {
			s.guess(all[begin:], holders[begin:])
			return all, err
		}
	}
	return all, nil
}

// readInto reads the budgets of some holders.
func (s *Store) readInto(ctx context.Context, states []budget.States, holders []budget.Holder) error {
	if !s.up() {
		return errors.New("the shared store of budgets does not answer")
	}
	keys := make([]string, len(holders))
	for i := range holders {
		keys[i] = bookKey(s.cfg.Prefix, holders[i].Key)
	}
	books, now, err := s.ledger.read(ctx, keys)
	if err != nil {
		return err
	}
	for i, b := range books {
		terms := holders[i].Limits.Terms(s.cfg.Burst)
		levels := terms.Hold
		if b != nil {
			levels = b.levels(&terms, now)
		}
		states[i] = terms.States(&levels, now)
	}
	return nil
}

// guess is what this gateway knows of some holders.
func (s *Store) guess(states []budget.States, holders []budget.Holder) {
	for i := range holders {
		if b, ok := s.books.Find(holders[i].Key); ok {
			states[i] = b.States()
			s.books.Close(b)
		} else {
			states[i] = budget.Whole(holders[i].Limits, s.cfg.Burst, s.clock())
		}
	}
}
