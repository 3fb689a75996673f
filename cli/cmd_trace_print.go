package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/forebay-io/forebay/gateway/capture"
)

// traceWidth is the width of a whole request, in characters.
const traceWidth = 48

// printTrace writes a request like its page, with bars of characters.
func printTrace(w io.Writer, v *capture.View) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	state := v.Outcome
	if v.Running {
		state = "still running"
	}
	firstToken := "no first token"
	if v.FirstTokenMS > 0 {
		firstToken = "first token after " + millis(v.FirstTokenMS)
	}
	fmt.Fprintf(t, "%s\n\n", v.Sentence)
	fmt.Fprintf(t, "request\t%s\n", traceName(v.ID, v.ClientID))
	fmt.Fprintf(t, "trace\t%s\n", v.TraceID)
	fmt.Fprintf(t, "ended\t%s, status %d, after %s; %s\n", state, v.Status, millis(v.WallMS), firstToken)
	printPromise(t, v)
	if v.WaitReason != "" && v.WaitReason != "none" {
		fmt.Fprintf(t, "waited for\t%s, %s\n", v.WaitReason, millis(v.QueueMS))
	}
	tenant := v.Tenant
	if v.Key != "" {
		tenant += ", key " + v.Key
	}
	computed := ""
	if v.Outcome != "ok" && v.CachedTokens+v.ComputedTokens < v.PromptTokens { // it ended early
		computed = fmt.Sprintf(" %d computed,", v.ComputedTokens)
	}
	fmt.Fprintf(t, "of\ttenant %s, class %s; %d prompt tokens, %d cached,%s %d made\n", tenant, v.Class, v.PromptTokens, v.CachedTokens, computed, v.CompletionTokens)
	if len(v.Reasons)+len(v.Broken) > 0 {
		fmt.Fprintf(t, "kept for\t%s\n", strings.Join(slices.Concat(v.Reasons, v.Broken), ", "))
	}
	if u := v.Usual; u != nil {
		fmt.Fprintf(t, "usual\tfor its class and size: %s, first token after %s (medians of %d); it took %.2f times that\n", millis(u.WallMS), millis(u.FirstTokenMS), u.Requests, u.Ratio)
	}
	if v.Unkept {
		fmt.Fprintln(t, "kept\tno: this is what is still in memory; x-forebay-capture: 1 keeps the next one")
	}
	t.Flush()
	printParts(w, v)
	if len(v.Steps) > 0 {
		fmt.Fprintf(w, "\n%-14s|%s|\n", "STEPS", stepLine(v))
		fmt.Fprintln(w, "              P its own prompt, d next tokens only, # others' prompts, . left out, ! the engine did not run")
	}
	if len(v.Stall) > 0 {
		fmt.Fprintln(t, "\nIN THE ENGINE\tBEFORE THE FIRST TOKEN\tAFTER IT\tOF ALL")
		for _, s := range v.Stall {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.Name, fineMillis(s.BeforeFirstMS), fineMillis(s.AfterFirstMS), bars(0, s.BeforeFirstMS+s.AfterFirstMS, v.WallMS))
		}
	}
	if len(v.Kernels) > 0 {
		fmt.Fprintln(t, "\nKERNELS\tLAUNCHES\tWHOLE\tITS OWN PART")
		for _, k := range v.Kernels {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", k.Class, k.Count, fineMillis(k.WallMS), fineMillis(k.ShareMS))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(v.Neighbours) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return printNeighbours(w, v)
}

// printPromise writes what was promised and predicted of the first token.
func printPromise(w io.Writer, v *capture.View) {
	if goal := millis(v.FirstTokenGoalMS); v.Promise != "" {
		fmt.Fprintf(w, "promised\ta first token within %s: %s\n", goal, v.Promise)
	} else if v.FirstTokenGoalMS > 0 {
		fmt.Fprintf(w, "goal\ta first token within %s, not promised\n", goal)
	}
	if v.PredictedMS > 0 {
		fmt.Fprintf(w, "predicted\ta first token after %s", millis(v.PredictedMS))
		if v.PredictionRatio > 0 {
			fmt.Fprintf(w, "; it took %.2f times that", v.PredictionRatio)
		}
		fmt.Fprintln(w)
	}
}

func printParts(w io.Writer, v *capture.View) {
	fmt.Fprintln(w)
	for _, p := range v.Parts {
		fmt.Fprintf(w, "%-14s|%-*s| %10s  %3.0f%%\n", p.Name, traceWidth, bars(p.BeginMS, p.MS, v.WallMS), fineMillis(p.MS), 100*p.MS/max(v.WallMS, 1e-9))
	}
}

// bars draws a time range within wall, with at least one character.
func bars(begin, ms, wall float64) string {
	if wall <= 0 {
		return ""
	}
	column := func(ms float64) int { return int(math.Round(min(max(ms/wall, 0), 1) * traceWidth)) }
	from := min(column(begin), traceWidth-1)
	return strings.Repeat(" ", from) + strings.Repeat("█", max(1, column(begin+ms)-from))
}

// stepLine marks each character's time range by the kind of step that took most of it.
func stepLine(v *capture.View) string {
	var took [traceWidth]map[byte]float64
	for i := range v.Steps {
		s := &v.Steps[i]
		mark := byte('d')
		switch {
		case 2*s.LostMS >= s.MS && s.LostMS > 0:
			mark = '!'
		case !s.Member:
			mark = '.'
		case s.PrefillTokens > s.OthersPrefill:
			mark = 'P'
		case s.OthersPrefill > 0:
			mark = '#'
		}
		each := v.WallMS / traceWidth
		for col := max(0, int(s.BeginMS/each)); col < traceWidth && float64(col)*each < s.BeginMS+s.MS; col++ {
			if took[col] == nil {
				took[col] = map[byte]float64{}
			}
			took[col][mark] += min(float64(col+1)*each, s.BeginMS+s.MS) - max(float64(col)*each, s.BeginMS)
		}
	}
	line := []byte(strings.Repeat(" ", traceWidth))
	for col, marks := range took {
		most := 0.0
		for _, mark := range []byte("!P#d.") {
			if marks[mark] > most {
				line[col], most = mark, marks[mark]
			}
		}
	}
	return string(line)
}

// printNeighbours lists the requests that shared steps with v.
func printNeighbours(w io.Writer, v *capture.View) error {
	if len(v.Neighbours) == 0 {
		_, err := fmt.Fprintln(w, "It was alone in its steps, as far as they are known.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NEIGHBOUR\tTENANT\tCLASS\tSHARED STEPS\tPROMPT TOKENS\tNEXT TOKENS\tITS TIME")
	for _, n := range v.Neighbours {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", n.ID, n.Tenant, n.Class, n.Steps, n.PrefillTokens, n.DecodeTokens, fineMillis(n.MS))
	}
	return t.Flush()
}

// printTraceDiff writes the parts of two requests side by side.
func printTraceDiff(w io.Writer, a, b *capture.View) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, x, y float64) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", name, fineMillis(x), fineMillis(y), difference(x, y))
	}
	fmt.Fprintf(t, "PART\t%s\t%s\tDIFFERENCE\n", a.ID, b.ID)
	for _, name := range namesOf(a.Parts, b.Parts, func(p capture.PartView) string { return p.Name }) {
		of := func(v *capture.View) (ms float64) {
			for _, p := range v.Parts {
				if p.Name == name {
					ms += p.MS
				}
			}
			return ms
		}
		row(name, of(a), of(b))
	}
	row("all", a.WallMS, b.WallMS)
	if len(a.Stall)+len(b.Stall) > 0 {
		fmt.Fprintf(t, "\nIN THE ENGINE\t%s\t%s\tDIFFERENCE\n", a.ID, b.ID)
	}
	for _, name := range namesOf(a.Stall, b.Stall, func(s capture.StallView) string { return s.Name }) {
		of := func(v *capture.View) (ms float64) {
			for _, s := range v.Stall {
				if s.Name == name {
					ms += s.BeforeFirstMS + s.AfterFirstMS
				}
			}
			return ms
		}
		row(name, of(a), of(b))
	}
	fmt.Fprintf(t, "\nCOUNTS\t%s\t%s\tDIFFERENCE\n", a.ID, b.ID)
	fmt.Fprintf(t, "prompt tokens\t%d\t%d\t%+d\n", a.PromptTokens, b.PromptTokens, b.PromptTokens-a.PromptTokens)
	fmt.Fprintf(t, "of them cached\t%d\t%d\t%+d\n", a.CachedTokens, b.CachedTokens, b.CachedTokens-a.CachedTokens)
	fmt.Fprintf(t, "tokens made\t%d\t%d\t%+d\n", a.CompletionTokens, b.CompletionTokens, b.CompletionTokens-a.CompletionTokens)
	fmt.Fprintf(t, "neighbours\t%d\t%d\t%+d\n", len(a.Neighbours), len(b.Neighbours), len(b.Neighbours)-len(a.Neighbours))
	return t.Flush()
}

// namesOf returns the names in a, followed by those that only b has.
func namesOf[T any](a, b []T, name func(T) string) (names []string) {
	for _, x := range slices.Concat(a, b) {
		if n := name(x); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}
