package sim

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// column is a column of the table.
type column struct {
	title, key string
	scale      float64
	digits     int
}

var tableColumns = []column{
	{"goodput %", "goodput", 100, 1}, {"broken %", "broken", 100, 2}, {"revoked %", "revoked", 100, 2}, {"refused %", "refused", 100, 1}, {"demoted %", "demoted", 100, 1},
	{"TTFT mean", "ttft_mean_s", 1, 2}, {"p50", "ttft_p50_s", 1, 2}, {"p95", "ttft_p95_s", 1, 2}, {"p99 s", "ttft_p99_s", 1, 2},
	{"TBT p99 ms", "tbt_p99_s", 1000, 0}, {"E2E p95 s", "e2e_p95_s", 1, 1}, {"longest wait s", "wait_max_s", 1, 1},
}

var wholeColumns = []column{
	{"jain", "jain", 1, 3}, {"jain of entitled", "jain_of_entitled", 1, 3}, {"service gap s", "service_gap_max_s", 1, 2},
	{"utilisation %", "utilisation", 100, 1}, {"lost tokens", "wasted_tokens", 1, 0}, {"actual/predicted p50", "estimate_ratio_p50", 1, 2}, {"p90", "estimate_ratio_p90", 1, 2},
}

// WriteTable writes a comparison as text: a table for each class, and one for the
// engine and its tenants.
func (r *Result) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "trace %s, load %.3g of what the engine can do (%.3g requests a second of this trace), %s\n", r.Trace, r.Load, r.Capacity, plural(r.Seeds, "seed"))
	if r.Seeds > 1 {
		b.WriteString("means, ± half of the 95 % interval\n")
	}
	for _, class := range names(r.Policies[0].Mean.Classes) {
		r.table(&b, class, tableColumns, func(o *Outcome) []Metric { return o.Classes[class] })
	}
	r.table(&b, "all", wholeColumns, func(o *Outcome) []Metric { return o.All })
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (r *Result) table(out io.Writer, title string, columns []column, of func(*Outcome) []Metric) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\t", title)
	for _, c := range columns {
		fmt.Fprintf(w, "%s\t", c.title)
	}
	fmt.Fprintln(w)
	for i := range r.Policies {
		p := &r.Policies[i]
		fmt.Fprintf(w, "%s\t", p.Policy)
		for _, c := range columns {
			metrics := of(&p.Mean)
			if c.key == "jain" && value(metrics, "jain_windows") == 0 { // no two tenants waited through a window
				metrics = nil
			}
			fmt.Fprintf(w, "%s\t", c.text(value(metrics, c.key), value(of(&p.Half), c.key)))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

func (c *column) text(mean, half float64) string {
	if math.IsNaN(mean) {
		return "-"
	}
	text := fmt.Sprintf("%.*f", c.digits, c.scale*mean)
	if c.key == "goodput" && !math.IsNaN(half) && !math.IsInf(half, 0) {
		text += fmt.Sprintf(" ±%.*f", c.digits, c.scale*half)
	}
	return text
}
