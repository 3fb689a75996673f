package capture

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// Find returns the newest request, kept or running, with that id, client's id or
// trace id; nil for none. The View must not be changed.
func (s *Store) Find(name string) *View { return s.find(name).shown() }

// Trees returns the spans of the request that Find returns, on today's
// CLOCK_MONOTONIC: its own trace, then those of the steps that it shows. It
// returns nil if there is no such request, or if another version of this program
// has kept it.
func (s *Store) Trees(name string, names spans.Names) []spans.Tree {
	k := s.find(name)
	if k == nil {
		return nil
	}
	trees := k.trees(names)
	if len(trees) > 0 { // the clock may have begun again since the request came
		shift(trees, wire.Monotonic()-int64(time.Since(k.view.Arrived))-k.record.Arrived)
	}
	return trees
}

// Explain returns the View of a request that has ended, whether or not it was kept,
// from its record and from those of its steps that are still in memory. It owns r.
func (s *Store) Explain(r *telemetry.Record) *View {
	if s == nil || r.Finished == 0 {
		return nil
	}
	k := s.build(r, decide(r, tails{}, 1, math.MaxInt), false, wire.Monotonic())
	k.view.Reasons, k.view.Unkept = []string{}, true
	return k.shown()
}

func (s *Store) find(name string) *kept {
	if s == nil || name == "" {
		return nil
	}
	if r := s.runningRecord(name); r != nil {
		return s.build(r, 0, false, wire.Monotonic())
	}
	s.flush()
	s.mu.Lock()
	full, brief := s.full.find(name), s.brief.find(name)
	s.mu.Unlock()
	if full == nil || brief != nil && brief.view.Arrived.After(full.view.Arrived) {
		return brief
	}
	return full
}

// Has tells whether a request with that id is kept or about to be kept.
func (s *Store) Has(id string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full.find(id) != nil || s.brief.find(id) != nil
}

// List returns all kept requests, the newest first, each without its steps. The
// Views must not be changed.
func (s *Store) List() []*View {
	if s == nil {
		return nil
	}
	s.flush()
	s.mu.Lock()
	all := slices.Concat(s.full.ring, s.brief.ring)
	s.mu.Unlock()
	views := make([]*View, 0, len(all))
	for _, k := range all {
		if k != nil {
			views = append(views, k.view)
		}
	}
	slices.SortStableFunc(views, func(a, b *View) int { return cmp.Or(b.Arrived.Compare(a.Arrived), cmp.Compare(a.ID, b.ID)) })
	return views
}
