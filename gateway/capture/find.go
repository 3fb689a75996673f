package capture

import (
	"cmp"
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

// Filter selects requests; its zero value selects all kept requests.
type Filter struct {
	Running bool // running requests instead of kept ones
	Slow    bool // over a goal of their class, or unusual
	Failed  bool // no complete answer: failed, refused, or left by their client
	Class   string
	Tenant  string
	Model   string
	Since   time.Time
	Limit   int // 0 is no limit
}

// admits tells whether v passes the filter.
func (f *Filter) admits(v *View) bool {
	switch {
	case f.Class != "" && v.Class != f.Class, f.Tenant != "" && v.Tenant != f.Tenant, f.Model != "" && v.Model != f.Model, v.Arrived.Before(f.Since):
		return false
	case f.Slow && len(v.Broken) == 0 && !slices.ContainsFunc(v.Reasons, func(name string) bool {
		return name == reasonNames[reasonUnusual.first()] || name == reasonNames[reasonHung.first()]
	}):
		return false
	case f.Failed && (v.Outcome == telemetry.OK.String() || v.Running):
		return false
	}
	return true
}

// List returns the requests that pass the filter, the newest first, each without
// its steps. The Views must not be changed.
func (s *Store) List(f Filter) []*View {
	if s == nil {
		return nil
	}
	var all []*kept
	if f.Running {
		now := wire.Monotonic()
		for _, r := range s.runningRecords() {
			all = append(all, s.build(&r, 0, true, now))
		}
	} else {
		s.flush()
		s.mu.Lock()
		all = slices.Concat(s.full.ring, s.brief.ring)
		s.mu.Unlock()
	}
	var views []*View
	for _, k := range all {
		if k != nil && f.admits(k.view) {
			views = append(views, k.view)
		}
	}
	slices.SortStableFunc(views, func(a, b *View) int { return cmp.Or(b.Arrived.Compare(a.Arrived), cmp.Compare(a.ID, b.ID)) })
	if f.Limit > 0 && len(views) > f.Limit {
		views = views[:f.Limit]
	}
	return views
}
