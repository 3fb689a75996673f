package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/bench/speed"
)

// printSpeed prints one result of a benchmark in words.
func printSpeed(out io.Writer, line any) error {
	row := func(name, format string, args ...any) error {
		_, err := fmt.Fprintf(out, "%-14s %s\n", name, fmt.Sprintf(format, args...))
		return err
	}
	switch r := line.(type) {
	case *speed.Head:
		resident := ""
		if r.ResidentBytes > 0 {
			resident = fmt.Sprintf(", %s resident", size(r.ResidentBytes))
		}
		return cmp.Or(
			row("model", "%s, loaded in %.2f s", r.Model, r.LoadS),
			row("kernels", "%s, %d threads, prompts in steps of %d tokens", r.Features, r.Threads, r.ChunkTokens),
			row("memory", "weights %s, of which a step reads %s; %s a token of context%s", size(r.WeightBytes), size(r.ReadBytes), size(r.KVTokenBytes), resident),
		)
	case *speed.Machine:
		var gops []string
		for _, name := range slices.Sorted(maps.Keys(r.GOPS)) {
			gops = append(gops, fmt.Sprintf(", %s %.0f GOPS", name, r.GOPS[name]))
		}
		return row("machine", "%d threads: memory %.1f GB/s, cache %.0f GB/s%s", r.Threads, r.ReadGBs, r.CacheGBs, strings.Join(gops, ""))
	case *speed.Prefill:
		return cmp.Or(
			row("prefill", "%d tokens: %.1f tokens/s (%s)", r.Tokens, r.TokensPerS, leastMost(r.All)),
			row("", "%s", shares(r.Shares)),
		)
	case *speed.Decode:
		return cmp.Or(
			row("decode", "depth %d, %d streams: %.1f tokens/s (%s), a step %.2f ms; %s a step, %.0f %% of the %.1f GB/s read just before",
				r.Depth, r.Streams, r.TokensPerS, leastMost(r.All), r.StepMS, size(r.StepBytes), 100*r.ReadShare, r.ReadGBs),
			row("", "%s", shares(r.Shares)),
		)
	case *speed.Part:
		return printPart(out, r)
	}
	return fmt.Errorf("a %T is no result of a benchmark", line)
}

// printPart prints a line of the table of operations.
func printPart(out io.Writer, p *speed.Part) error {
	op := fmt.Sprintf("%s %s", p.Op, p.Type)
	if p.Context > 0 {
		op = fmt.Sprintf("%s at %d", p.Op, p.Context)
	}
	rates := fmt.Sprintf("%8.1f GB/s", p.GBs)
	if p.GOPS > 0 {
		rates += fmt.Sprintf(" %8.1f GOPS", p.GOPS)
	} else {
		rates += strings.Repeat(" ", 14)
	}
	if p.Bound != "" {
		rates += fmt.Sprintf("  %3.0f %% of %s", 100*p.Share, p.Bound)
	}
	_, err := fmt.Fprintf(out, "%-24s %4d rows %3d workers %s\n", strings.TrimSpace(op), p.Rows, p.Workers, strings.TrimRight(rates, " "))
	return err
}

// leastMost prints the smallest and the largest result of several runs.
func leastMost(all []float64) string {
	return fmt.Sprintf("%.1f to %.1f", slices.Min(all), slices.Max(all))
}

// shares prints the share of each kernel class, the largest first.
func shares(of map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %.1f %%", name, 100*of[name])
	}
	return strings.Join(names, ", ")
}
