package cli

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/debug"
)

// traceFilter holds the flags that choose which requests are listed.
type traceFilter struct {
	class, tenant, key, outcome, cause, reason, since, until *string
	leastMS                                                  *float64
	slow, failed                                             *bool
}

func addTraceFilter(set *flag.FlagSet) traceFilter {
	return traceFilter{
		class: set.String("class", "", "only of this class"), tenant: set.String("tenant", "", "only of this tenant"),
		key:     set.String("key", "", "only of the key with this name"),
		outcome: set.String("outcome", "", "only those that ended so, such as ok or client_gone"),
		cause:   set.String("cause", "", "only those whose time went to this, such as queue, others_prefill or frozen"),
		since:   set.String("since", "", "only those that ended since then: 10m, or a time such as 2026-01-31T14:05:00Z"),
		until:   set.String("until", "", "only those that ended before that"),
		reason:  set.String("reason", "", "only those kept for this reason, or that missed this goal"),
		leastMS: set.Float64("min-ms", 0, "only requests that took at least this many milliseconds"),
		slow:    set.Bool("slow", false, "only those that were slow"), failed: set.Bool("failed", false, "only those that failed"),
	}
}

// page asks for the requests that pass the filter.
func (f *traceFilter) page(base string) (*debug.RequestsPage, []byte, error) {
	q := url.Values{"format": {"json"}}
	for key, value := range map[string]string{"class": *f.class, "tenant": *f.tenant, "key": *f.key, "outcome": *f.outcome, "cause": *f.cause, "reason": *f.reason, "since": *f.since, "until": *f.until} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if *f.leastMS > 0 {
		q.Set("min_ms", strconv.FormatFloat(*f.leastMS, 'g', -1, 64))
	}
	page := new(debug.RequestsPage)
	text, err := askPage(base, "/debug/requests?"+q.Encode(), page)
	return page, text, err
}

// ended returns the ended requests that the flags ask for.
func (f *traceFilter) ended(page *debug.RequestsPage) []debug.RequestEnded {
	switch {
	case *f.slow:
		return page.Slow
	case *f.failed:
		return page.Failed
	}
	return page.Finished
}

// runTraceList lists the requests that run and the last that ended.
func runTraceList(c *console, args []string) error {
	set := newFlagSet("trace ls [--slow] [--failed] [--class NAME] [--tenant NAME] [--key NAME] [--outcome NAME] [--cause NAME] [--reason NAME] [--min-ms N] [--since TIME] [--until TIME] [--admin ADDR] [--json]")
	filter, asJSON := addTraceFilter(set), set.Bool("json", false, "print what the page says as JSON")
	base, _, err := c.adminURL(set, args, 0)
	if err != nil {
		return err
	}
	page, text, err := filter.page(base)
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = c.out.Write(append(text, '\n'))
		return err
	}
	t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	if len(page.InFlight) > 0 && !*filter.slow && !*filter.failed {
		fmt.Fprintln(t, "RUNNING\tTENANT\tCLASS\tSTAGE\tIN IT FOR\tAGE\tTOKENS")
		for _, r := range page.InFlight {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", traceName(r.ID, r.ClientID), r.Tenant, r.Class, r.Stage, millis(r.StageMS), millis(r.AgeMS), r.Tokens)
		}
		fmt.Fprintln(t)
	}
	all := filter.ended(page)
	if len(all) == 0 {
		fmt.Fprintln(t, "No request that ended is listed.")
		return t.Flush()
	}
	fmt.Fprintln(t, "ENDED\tTENANT\tCLASS\tOUTCOME\tCAUSE\tAGO\tTOOK\tFIRST TOKEN\tTOKENS\tKEPT FOR")
	for i := range all {
		printEnded(t, &all[i])
	}
	return t.Flush()
}

func printEnded(w io.Writer, r *debug.RequestEnded) {
	outcome, kept := r.Outcome, strings.Join(r.Reasons, ", ")
	if r.Error != "" && r.Error != r.Outcome {
		outcome += " (" + r.Error + ")"
	}
	if !r.Kept {
		kept = "-"
	}
	first := "-"
	if r.FirstTokenMS > 0 {
		first = fineMillis(r.FirstTokenMS)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d + %d\t%s\n", traceName(r.ID, r.ClientID), r.Tenant, r.Class, outcome, r.Cause, millis(r.AgoMS), fineMillis(r.TotalMS), first, r.PromptTokens, r.CompletionTokens, kept)
}

// traceName prints an id to paste into the next command, with the client's own id.
func traceName(id, clientID string) string {
	if clientID == "" {
		return id
	}
	return id + " (" + clientID + ")"
}

// askTraces asks for the requests named on the command line, of which there
// must be exactly count.
func (c *console) askTraces(set *flag.FlagSet, args []string, count int) (base string, views []*capture.View, texts [][]byte, err error) {
	base, ids, err := c.adminURL(set, args, count)
	if err != nil {
		return "", nil, nil, err
	}
	if len(ids) < count {
		missing := "an id"
		if count > 1 {
			missing = fmt.Sprintf("%d ids", count)
		}
		verb, _, _ := strings.Cut(strings.TrimPrefix(set.Name(), "trace "), " ")
		return "", nil, nil, usageError(fmt.Sprintf("trace %s needs %s: of the request, of its client or of its trace; forebay trace ls lists them", verb, missing))
	}
	for _, id := range ids {
		view := new(capture.View)
		text, err := askPage(base, "/debug/requests/"+url.PathEscape(id)+"?format=json", view)
		if err != nil {
			return "", nil, nil, err
		}
		views, texts = append(views, view), append(texts, text)
	}
	return base, views, texts, nil
}

// runTraceShow shows where one request's time went.
func runTraceShow(c *console, args []string) error {
	_, views, _, err := c.askTraces(newFlagSet("trace show ID [--admin ADDR]"), args, 1)
	if err != nil {
		return err
	}
	return printTrace(c.out, views[0])
}

// runTraceDiff compares the parts of two requests.
func runTraceDiff(c *console, args []string) error {
	_, views, _, err := c.askTraces(newFlagSet("trace diff ID ID [--admin ADDR]"), args, 2)
	if err != nil {
		return err
	}
	return printTraceDiff(c.out, views[0], views[1])
}

// runTraceNeighbors lists the requests that were in the same steps.
func runTraceNeighbors(c *console, args []string) error {
	_, views, _, err := c.askTraces(newFlagSet("trace neighbors ID [--admin ADDR]"), args, 1)
	if err != nil {
		return err
	}
	return printNeighbours(c.out, views[0])
}

// runTraceExport writes one request as a file for other programs.
func runTraceExport(c *console, args []string) error {
	set := newFlagSet("trace export ID [--format perfetto|otlp|json] [-o FILE] [--admin ADDR]")
	format := set.String("format", "perfetto", "perfetto, for ui.perfetto.dev; otlp, for viewers of traces; or json")
	name := set.String("o", "", "file to write; empty writes to standard output")
	base, views, _, err := c.askTraces(set, args, 1)
	if err != nil {
		return err
	}
	if !slices.Contains([]string{"perfetto", "otlp", "json"}, *format) {
		return usageError(fmt.Sprintf("--format %q is not one of perfetto, otlp, json", *format))
	}
	text, err := askAdmin(http.MethodGet, base+"/debug/requests/"+url.PathEscape(views[0].ID)+"?format="+*format)
	if err != nil {
		return err
	}
	return c.writeFile(*name, text)
}

// writeFile writes text and a newline to the named file, or to standard output
// if name is empty.
func (c *console) writeFile(name string, text []byte) error {
	text = append(text, '\n')
	if name == "" {
		_, err := c.out.Write(text)
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// runTraceLaunches records every kernel launch of the engine's next steps.
func runTraceLaunches(c *console, args []string) error {
	set := newFlagSet("trace launches [--steps N | --after ID] [-o FILE] [--admin ADDR]")
	after := set.String("after", "", "instead, what was taken down after the request of this id missed a goal (capture.arm_steps); last for the last one")
	steps := set.Int("steps", 100, "how many steps; the engine must be at work, and after 10 s it is over")
	name := set.String("o", "", "file to write, for ui.perfetto.dev; empty writes to standard output")
	base, _, err := c.adminURL(set, args, 0)
	if err != nil {
		return err
	}
	query := fmt.Sprintf("steps=%d", *steps)
	if *after != "" {
		query = "after=" + url.QueryEscape(strings.TrimPrefix(*after, "last"))
	}
	text, err := askAdmin(http.MethodGet, base+"/debug/launches?"+query)
	if err != nil {
		return err
	}
	return c.writeFile(*name, text)
}

// runTraceWatch prints requests as they end, until it is interrupted.
func runTraceWatch(c *console, args []string) error {
	set := newFlagSet("trace watch [--interval D] [--slow] [--failed] [--class NAME] [--tenant NAME] [--key NAME] [--outcome NAME] [--cause NAME] [--reason NAME] [--min-ms N] [--admin ADDR]")
	filter, interval := addTraceFilter(set), set.Duration("interval", time.Second, "time between two looks")
	base, _, err := c.adminURL(set, args, 0)
	if err != nil {
		return err
	}
	if *interval < 10*time.Millisecond {
		return usageError(fmt.Sprintf("--interval %v is too short; 10ms is the least", *interval))
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	w := traceWatch{filter: filter, out: c.out, seen: map[string]bool{}}
	for {
		if err := w.look(base); err != nil {
			return err
		}
		select {
		case <-interrupts:
			return nil
		case <-time.After(*interval):
		}
	}
}

// traceWatch prints each request once.
type traceWatch struct {
	filter traceFilter
	out    io.Writer
	seen   map[string]bool // of the page before
	began  bool
}

// look prints the requests that ended since the last look, the oldest first. The
// first look prints nothing.
func (w *traceWatch) look(base string) error {
	page, _, err := w.filter.page(base)
	if err != nil {
		return err
	}
	all := w.filter.ended(page)
	now := make(map[string]bool, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		r := &all[i]
		if now[r.ID] = true; w.seen[r.ID] || !w.began {
			continue
		}
		why := r.Sentence
		if why == "" && r.Kept {
			why = strings.Join(r.Reasons, ", ")
		}
		if _, err := fmt.Fprintf(w.out, "%s  %s  %s  %s  %s  %s\n", r.ID, r.Class, r.Tenant, r.Outcome, fineMillis(r.TotalMS), why); err != nil {
			return err
		}
	}
	w.seen, w.began = now, true
	return nil
}
