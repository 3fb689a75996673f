package capture

import (
	"encoding/hex"
	"maps"
	"slices"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

func (s *Store) runningRecords() []telemetry.Record {
	if running := s.running.Load(); running != nil {
		return (*running)()
	}
	return nil
}

// runningRecord finds the record of a running request by any of its names.
func (s *Store) runningRecord(name string) *telemetry.Record {
	for _, r := range s.runningRecords() {
		if r.ID == name || r.ClientID == name || hex.EncodeToString(r.Trace.TraceID[:]) == name {
			return &r
		}
	}
	return nil
}

// check keeps requests that are far over a goal while they still run, because
// some never end. The end of one is judged again.
func (s *Store) check() {
	now, all := wire.Monotonic(), s.runningRecords()
	s.mu.Lock()
	maps.DeleteFunc(s.hung, func(id string, _ bool) bool {
		return !slices.ContainsFunc(all, func(r telemetry.Record) bool { return r.ID == id })
	})
	s.mu.Unlock()
	for _, r := range all {
		if !hung(&r, now, s.cfg.WatchdogFactor) {
			continue
		}
		s.mu.Lock()
		// One that has ended meanwhile may have been offered: what is kept of its end stays.
		if !s.hung[r.ID] && s.runningRecord(r.ID) != nil {
			r.Broken = r.Missed(now)
			s.hung[r.ID] = s.keep(s.quota.class(r.Class), &r, reasonHung)
		}
		s.mu.Unlock()
	}
}

// hung tells that a running request is factor times over a goal: it waits too
// long for its first token, or for the next one.
func hung(r *telemetry.Record, now int64, factor float64) bool {
	if goal := float64(r.FirstTokenGoal); goal > 0 && r.FirstToken == 0 && r.Prepared != 0 {
		return float64(now-r.Arrived) > factor*goal
	}
	if goal := float64(r.TokenGoal); goal > 0 && r.FirstToken != 0 {
		return r.TokenTime() > factor*goal || float64(now-r.LastToken) > hungTokens*factor*goal
	}
	return false
}

// hungTokens is how many times the goal between tokens one token may take: a single
// late token is no sign that the request hangs.
const hungTokens = 10
