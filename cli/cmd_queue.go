package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/forebay-io/forebay/gateway/debug"
)

// runQueue shows who waits at a running Forebay, and why.
func runQueue(c *console, args []string) error {
	set := newFlagSet("queue [--admin ADDR] [--json]")
	asJSON := set.Bool("json", false, "print what the page says as JSON")
	base, _, err := c.adminURL(set, args, 0)
	if err != nil {
		return err
	}
	text, err := askAdmin(http.MethodGet, base+"/debug/queue?format=json")
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = c.out.Write(append(text, '\n'))
		return err
	}
	var page debug.QueuePage
	if err := json.Unmarshal(text, &page); err != nil {
		return fmt.Errorf("%s does not answer as a queue of Forebay does: %w", base, err)
	}
	return printQueue(c.out, &page)
}

func runQueueOpen(c *console, args []string) error  { return c.setClass("open", "open", args) }
func runQueuePause(c *console, args []string) error { return c.setClass("pause", "paused", args) }
func runQueueDrain(c *console, args []string) error { return c.setClass("drain", "drained", args) }

// setClass sets the mode of the class named by the arguments.
func (c *console) setClass(verb, mode string, args []string) error {
	base, names, err := c.adminURL(newFlagSet("queue "+verb+" CLASS [--admin ADDR]"), args, 1)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return usageError("queue " + verb + " needs a class, such as offline")
	}
	if _, err := askAdmin(http.MethodPost, base+"/debug/queue/"+url.PathEscape(names[0])+"?mode="+mode); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s is %s\n", names[0], mode)
	return err
}

// ofGroup is a class, of a group of servers where there are several.
func ofGroup(class, group string) string {
	if group == "" {
		return class
	}
	return group + ": " + class
}

// printQueue writes the tables of p that are not empty.
func printQueue(w io.Writer, p *debug.QueuePage) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLASS\tMODE\tWAITING\tRUNNING\tSHARE\tBACKLOG\tMARGIN\tREFUSED\tDEMOTED\tREVOKED")
	for _, c := range p.Classes {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.0f%%\t%s\t%.2f\t%d\t%d\t%d\n",
			ofGroup(c.Name, c.Group), c.Mode, c.Waiting, c.Running, 100*c.Share, millis(c.BacklogMS), c.Margin, c.Refused, c.Demoted, c.Revoked)
	}
	if len(p.Tenants) > 0 {
		fmt.Fprintln(t, "\nTENANT\tCLASS\tWAITING\tRUNNING\tDEFICIT\tSERVED")
	}
	for _, n := range p.Tenants {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\n", n.Name, ofGroup(n.Class, n.Group), n.Waiting, n.Running, millis(n.DeficitMS), millis(n.ServedMS))
	}
	if len(p.Waiting) > 0 {
		fmt.Fprintln(t, "\nWAITING\tTENANT\tCLASS\tWHY\tWAITED\tSTARTS IN\tPREFILL\tTOKENS")
	}
	for _, r := range p.Waiting {
		class := ofGroup(r.Class, r.Group)
		if r.Demoted {
			class += " (demoted)"
		}
		starts := "unknown"
		if r.StartsMS >= 0 {
			starts = millis(r.StartsMS)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", r.ID, r.Tenant, class, r.Why, millis(r.WaitedMS), starts, millis(r.PrefillMS), r.Uncached)
	}
	if len(p.Running) > 0 {
		fmt.Fprintln(t, "\nRUNNING\tTENANT\tCLASS\tSINCE\tTOKENS")
	}
	for _, r := range p.Running {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", r.ID, r.Tenant, ofGroup(r.Class, r.Group), millis(r.RanMS), r.Tokens)
	}
	var notes []string
	if p.Brownout > 0 {
		notes = append(notes, fmt.Sprintf("overload: step %d of the ladder", p.Brownout))
	}
	if p.Degraded {
		notes = append(notes, "the shared store of budgets does not answer")
	}
	if len(notes) > 0 {
		fmt.Fprintln(t, "\n"+strings.Join(notes, "\n"))
	}
	return t.Flush()
}
