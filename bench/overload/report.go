package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report has all numbers.
type report struct {
	Date       string     `json:"date"`
	Command    string     `json:"command"`
	Processors int        `json:"processors"`
	Load       string     `json:"load_average"` // of the minute before: other work of the machine
	Scenario   string     `json:"scenario"`
	Clients    int        `json:"clients"` // that measured the capacity
	Seconds    float64    `json:"seconds"`
	Capacities []capacity `json:"capacities"`
	Runs       []*tally   `json:"runs"`
}

func newReport(o *options) *report {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return &report{Date: time.Now().UTC().Format(time.DateOnly), Command: o.command, Processors: runtime.NumCPU(), Load: load, Scenario: o.scenario, Clients: o.clients, Seconds: o.length.Seconds()}
}

func (r *report) writeJSON(name string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// column is a column of the table: a number of a tally, and how it is shown. A
// missing number is NaN.
type column struct {
	title string
	of    func(*tally) float64
	form  form
}

// form shows a number.
type form func(float64) string

func whole(x float64) string  { return fmt.Sprintf("%.0f", x) }
func tenths(x float64) string { return fmt.Sprintf("%.1f", x) }

// short shows three digits, or all before the point.
func short(x float64) string {
	if math.Abs(x) >= 100 {
		return whole(x)
	}
	return fmt.Sprintf("%.3g", x)
}

func percent(of func(*tally) float64) func(*tally) float64 {
	return func(y *tally) float64 { return 100 * of(y) }
}

// of returns a quantile as a number of a tally.
func of(q func(*tally) quantiles, which func(quantiles) float64) func(*tally) float64 {
	return func(y *tally) float64 {
		if v := q(y); v.N > 0 {
			return which(v)
		}
		return math.NaN()
	}
}

func p50(q quantiles) float64 { return q.P50 }
func p99(q quantiles) float64 { return q.P99 }

func columns(backlog bool) []column {
	first := func(y *tally) quantiles { return y.FirstToken }
	gateway := func(y *tally) quantiles { return y.RefusedGateway }
	client := func(y *tally) quantiles { return y.RefusedClient }
	all := []column{
		{"offered/s", func(y *tally) float64 { return y.OfferedRate }, short},
		{"served/s", func(y *tally) float64 { return y.ServedRate }, short},
		{"in time/s", func(y *tally) float64 { return y.InTimeRate }, short},
		{"in time, % of capacity", percent(func(y *tally) float64 { return y.OfCapacity }), whole},
		{"broken, % of admitted", percent(func(y *tally) float64 { return y.BrokenShare }), tenths},
		{"revoked, % of admitted", percent(func(y *tally) float64 { return y.RevokedShare }), tenths},
		{"first token p50, ms", of(first, p50), whole},
		{"p99", of(first, p99), whole},
		{"refused", func(y *tally) float64 { return float64(y.Refused) }, whole},
		{"refusal at the gateway p50, ms", of(gateway, p50), short},
		{"p99", of(gateway, p99), short},
		{"at the client p50, ms", of(client, p50), short},
		{"p99", of(client, p99), short},
	}
	if backlog {
		all = append(all, column{"batch tokens/s", func(y *tally) float64 { return y.BatchRate }, short}, column{"offline tokens/s", func(y *tally) float64 { return y.OfflineRate }, short})
	}
	return all
}

// markdown is the table, each cell with the median of the runs and the range.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s load, runs of %g s, %d processors, load average %s before:\n\n    %s\n\n", r.Date, r.Scenario, r.Seconds, r.Processors, r.Load, r.Command)
	all := columns(scenarios[r.Scenario].backlog)
	b.WriteString("| | offered ")
	for _, c := range all {
		b.WriteString("| " + c.title + " ")
	}
	b.WriteString("|\n|---|--:" + strings.Repeat("|--:", len(all)) + "|\n")
	for _, row := range r.rows() {
		fmt.Fprintf(&b, "| %s%s | %g × ", row[0].Server, part(row[0].Part), row[0].Factor)
		for _, c := range all {
			values := make([]float64, len(row))
			for i, y := range row {
				values[i] = c.of(y)
			}
			b.WriteString("| " + spread(values, c.form) + " ")
		}
		b.WriteString("|\n")
	}
	b.WriteByte('\n')
	r.notes(&b)
	return b.String()
}

// rows puts the runs of one server, factor and part together.
func (r *report) rows() (rows [][]*tally) {
	for _, y := range r.Runs {
		at := slices.IndexFunc(rows, func(row []*tally) bool {
			return row[0].Server == y.Server && row[0].Factor == y.Factor && row[0].Part == y.Part
		})
		if at < 0 {
			rows = append(rows, []*tally{y})
		} else {
			rows[at] = append(rows[at], y)
		}
	}
	return rows
}

// spread shows the median and, of more than one, the range.
func spread(values []float64, show form) string {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(known) == 0 {
		return "–"
	}
	slices.Sort(known)
	n := len(known)
	middle, least, most := show((known[(n-1)/2]+known[n/2])/2), show(known[0]), show(known[n-1])
	if least == most {
		return middle
	}
	return fmt.Sprintf("%s (%s–%s)", middle, least, most)
}

// notes says what the table does not: the capacities, and what may distort it.
func (r *report) notes(b *strings.Builder) {
	var names []string
	for _, c := range r.Capacities {
		if !slices.Contains(names, c.Server) {
			names = append(names, c.Server)
		}
	}
	for _, name := range names {
		r.capacityNote(b, name)
	}
	var lag, share float64
	for _, y := range r.Runs {
		lag, share = max(lag, y.Lag.P99), max(share, y.ClientShare)
		if lost := y.Failed + y.Unlogged; lost > 0 {
			fmt.Fprintf(b, "Run %d, %s × %g: %d requests failed, %d are missing in the log; reasons: %v.\n", y.Run, y.Server, y.Factor, y.Failed, y.Unlogged, y.Reasons)
		}
	}
	fmt.Fprintf(b, "The client sent its requests up to %.1f ms late (the largest p99 of a run) and took up to %.2f of a processor.\n", lag, share)
	if lag > milliseconds(lagMost) {
		fmt.Fprintf(b, "WARNING: a lag of over %v means that arrivals were not as planned; leave the processors to server and client.\n", lagMost)
	}
}

func (r *report) capacityNote(b *strings.Builder, name string) {
	var alone, beside, most []float64
	idle := 0
	for _, c := range r.Capacities {
		if c.Server == name {
			alone, beside = append(alone, c.Alone), append(beside, c.Beside)
			if c.Alone == 0 {
				idle++
			}
		}
	}
	if idle > 0 {
		fmt.Fprintf(b, "%s served none of the waiting clients in %d of %d runs, which are left out.\n", name, idle, len(alone))
	}
	if idle == len(alone) {
		return
	}
	largest := 0.0
	for _, y := range r.Runs {
		if y.Server != name || y.Part == "busy" || y.Factor < largest {
			continue
		}
		if y.Factor > largest {
			largest, most = y.Factor, nil
		}
		most = append(most, y.ServedRate)
	}
	fmt.Fprintf(b, "Capacity of %s with %d waiting clients: %s/s", name, r.Clients, spread(alone, short))
	if slices.Max(beside) > 0 {
		fmt.Fprintf(b, ", beside the %s %s/s", map[bool]string{true: "backlog", false: "busy loops"}[scenarios[r.Scenario].backlog], spread(beside, short))
	}
	fmt.Fprintf(b, "; served at %g ×: %s/s.\n", largest, spread(most, short))
}
