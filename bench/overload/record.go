package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// line is one request of a recorded run. Its first fields are those of a Mooncake
// trace, so that whatever reads these can read it. Times are milliseconds; a field
// that is missing is not known or was not reached.
type line struct {
	Timestamp float64 `json:"timestamp"` // when it was sent, from the start of the run
	Input     int     `json:"input_length"`
	Output    int     `json:"output_length"` // tokens that came; the asked ones if it was not answered
	Tenant    string  `json:"tenant"`
	Class     string  `json:"class"`

	Asked      int    `json:"asked_length"`
	Cached     int    `json:"cached_length,omitempty"`
	Source     string `json:"source"`
	Outcome    string `json:"outcome"`
	Reason     string `json:"reason"`
	Status     int    `json:"status"`
	RetryAfter int    `json:"retry_after,omitempty"` // seconds
	Broken     bool   `json:"broken,omitempty"`

	Goal        float64 `json:"goal_ms,omitempty"`
	Predicted   float64 `json:"predicted_ms,omitempty"` // to the first token, when it arrived
	ClientFirst float64 `json:"client_first_ms,omitempty"`
	ClientTotal float64 `json:"client_total_ms"`
	Lag         float64 `json:"lag_ms,omitempty"`

	Prepared   float64 `json:"prepared_ms,omitempty"`
	Reserved   float64 `json:"reserved_ms,omitempty"`
	Accepted   float64 `json:"accepted_ms,omitempty"`
	Admitted   float64 `json:"admitted_ms,omitempty"`
	Dispatched float64 `json:"dispatched_ms,omitempty"`
	FirstToken float64 `json:"first_token_ms,omitempty"`
	FirstWrite float64 `json:"first_write_ms,omitempty"`
	Total      float64 `json:"total_ms,omitempty"`
}

// meta says what a recorded run was. A factor of 0 is the closed loop that measured
// the capacity.
type meta struct {
	Server         string  `json:"server"`
	Scenario       string  `json:"scenario"`
	Factor         float64 `json:"factor"`
	Run            int     `json:"run"`
	Seed           uint64  `json:"seed"`
	Seconds        float64 `json:"seconds"`
	Capacity       float64 `json:"capacity"` // requests a second
	Model          string  `json:"model"`
	BusyFrom       float64 `json:"busy_from_s"` // 0 for never
	BusyLoops      int     `json:"busy_loops"`
	BatchClients   int     `json:"batch_clients"`
	OfflineClients int     `json:"offline_clients"`
}

func (m *meta) name() string {
	load := "capacity"
	if m.Factor > 0 {
		load = fmt.Sprintf("%gx", m.Factor)
	}
	return fmt.Sprintf("%s-%s-%s-run%d", m.Server, m.Scenario, load, m.Run)
}

// write writes the run's trace and what it was into a folder.
func (l *load) write(folder string, m *meta) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	name := filepath.Join(folder, m.name())
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".meta.json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	f, err := os.Create(name + ".jsonl")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	encoder := json.NewEncoder(out)
	samples := slices.Clone(l.samples)
	slices.SortFunc(samples, func(a, b *sample) int { return cmp.Compare(a.sent, b.sent) })
	for _, s := range samples {
		if err := encoder.Encode(s.line(l.server.text)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(out.Flush(), f.Close())
}

func (s *sample) line(text tokenScale) *line {
	a := &s.answer
	r := &line{
		Timestamp: milliseconds(s.sent), Input: text.tokens(s.words), Output: s.asked, Tenant: "default", Class: s.source.class(),
		Asked: s.asked, Source: s.source.String(), Outcome: s.ending.String(), Reason: cmp.Or(a.code, s.ending.String()), Status: a.status, RetryAfter: a.retryAfter, Broken: s.broken,
		ClientFirst: milliseconds(a.first), ClientTotal: milliseconds(a.end),
	}
	if s.source == open {
		r.Lag = milliseconds(s.lag())
	}
	if a.pieces > 0 {
		r.Output = a.pieces
	}
	g := s.log
	if g == nil {
		return r
	}
	r.Reason, r.Tenant = g.Outcome, cmp.Or(g.Tenant, r.Tenant)
	r.Input, r.Cached = cmp.Or(g.Prompt, r.Input), g.Cached
	r.Output = cmp.Or(g.Completion, r.Output)
	r.Goal, r.Predicted = g.Goal, g.Predicted
	r.Prepared, r.Reserved, r.Accepted, r.Admitted, r.Dispatched = g.Prepared, g.Reserved, g.Accepted, g.Admitted, g.Dispatched
	r.FirstToken, r.FirstWrite, r.Total = g.FirstToken, g.FirstWrite, g.Total
	return r
}
