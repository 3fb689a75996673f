package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// vectorFlags lists the prefixes of the processor flags that matter to kernels.
var vectorFlags = []string{"avx", "fma", "f16c", "amx", "asimd", "sve", "i8mm", "bf16"}

// markdown formats the record as a table, with the machine and versions above it.
func (r *record) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "    %s\n\n", r.Command)
	fmt.Fprintf(&b, "%s. %s, %d threads: %s.", r.Date, r.CPU, r.Threads, strings.Join(r.vectors(), " "))
	if r.Load != "" {
		fmt.Fprintf(&b, " Load average before it: %s.", r.Load)
	}
	if m := r.Machine; m != nil {
		fmt.Fprintf(&b, " In the same minutes it reads %.1f GB/s", m.ReadGBs)
		for _, name := range slices.Sorted(maps.Keys(m.GOPS)) {
			fmt.Fprintf(&b, ", %s %.0f GOPS", name, m.GOPS[name])
		}
		b.WriteString(" (medians).")
	}
	fmt.Fprintf(&b, "\n%s. Tokens a second, medians of %d rounds by turns (least to most).\n\n", r.versions(), r.Rounds)
	b.WriteString("| model | |")
	for _, e := range r.Engines {
		fmt.Fprintf(&b, " %s |", e.Name)
	}
	fmt.Fprintf(&b, " to the best other | of the read bandwidth |\n|---|---|%s\n", strings.Repeat("--:|", len(r.Engines)+2))
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "| %s | %s |", row.Model, row.What)
		for i := range row.Cells {
			fmt.Fprintf(&b, " %s |", row.Cells[i].text(r.Engines[i].Missing != ""))
		}
		fmt.Fprintf(&b, " %s | %s |\n", row.ratio(), row.share())
	}
	r.failures(&b)
	return b.String()
}

// vectors returns the flags of vector instructions.
func (r *record) vectors() []string {
	return slices.DeleteFunc(slices.Clone(r.Flags), func(flag string) bool {
		return !slices.ContainsFunc(vectorFlags, func(prefix string) bool { return strings.HasPrefix(flag, prefix) })
	})
}

func (r *record) versions() string {
	var all []string
	for _, e := range r.Engines {
		switch {
		case e.Missing != "":
			all = append(all, fmt.Sprintf("%s is missing (%s)", e.Name, e.Missing))
		case e.Name == "forebay":
			all = append(all, fmt.Sprintf("%s %s with %s", e.Name, e.Version, e.Features))
		default:
			all = append(all, strings.TrimSpace(e.Name+" "+e.Version))
		}
	}
	return strings.Join(all, "; ")
}

func (c *cell) text(missing bool) string {
	rates := present(c.Rates)
	switch {
	case missing:
		return "missing"
	case len(rates) == 0:
		return "failed"
	case len(rates) < len(c.Rates):
		return fmt.Sprintf("%s (%d rounds of %d)", rate(c.Median), len(rates), len(c.Rates))
	}
	return fmt.Sprintf("%s (%s–%s)", rate(c.Median), rate(slices.Min(rates)), rate(slices.Max(rates)))
}

// rate formats x with at least three significant digits.
func rate(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func (w *row) ratio() string {
	if w.Best == "" {
		return "–"
	}
	text := fmt.Sprintf("**%.2f×** %s", w.Ratio, w.Best)
	if len(w.Ratios) == 0 { // no round has both
		return text
	}
	return fmt.Sprintf("%s (%.2f–%.2f)", text, slices.Min(w.Ratios), slices.Max(w.Ratios))
}

func (w *row) share() string {
	if w.ReadShare == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*w.ReadShare)
}

// failures lists the failures below the table.
func (r *record) failures(b *strings.Builder) {
	for _, row := range r.Rows {
		for i := range row.Cells {
			if c := &row.Cells[i]; c.Failure != "" {
				fmt.Fprintf(b, "\n%s, %s: %s failed: %s\n", row.Model, row.What, r.Engines[i].Name, c.Failure)
			}
		}
	}
}
