package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/forebay-io/forebay/gateway"
)

// adminClient is how the commands reach the admin address.
var adminClient = http.Client{Timeout: 15 * time.Second} // a capture of launches may take ten

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
	var page gateway.QueuePage
	if err := json.Unmarshal(text, &page); err != nil {
		return fmt.Errorf("%s does not answer as a queue of Forebay does: %w", base, err)
	}
	return printQueue(c.out, &page)
}

func runQueueOpen(c *console, args []string) error  { return c.setClass("open", "open", args) }
func runQueuePause(c *console, args []string) error { return c.setClass("pause", "paused", args) }
func runQueueDrain(c *console, args []string) error { return c.setClass("drain", "drained", args) }

// setClass sets the one class that is named to mode.
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

// adminURL parses args, of which at most so many are no flags, and finds the
// admin address: as given, or that of the configuration.
func (c *console) adminURL(set *flag.FlagSet, args []string, atMost int) (base string, rest []string, err error) {
	address := set.String("admin", "", "the admin address of a running Forebay, as host:port; empty takes the configured one")
	if rest, err = c.parse(set, args); err != nil {
		return "", nil, err
	}
	if len(rest) > atMost {
		return "", nil, usageError(fmt.Sprintf("%q is not expected here", rest[atMost]))
	}
	if *address == "" {
		s, err := c.configure(newFlagSet(""), nil)
		if err != nil {
			return "", nil, err
		}
		if *address = s.Admin; *address == adminOff {
			return "", nil, usageError("the configuration has admin: off, so there is no address to ask; give another with --admin")
		}
	}
	if !isAddress(*address) {
		return "", nil, usageError(fmt.Sprintf("--admin %q is not an address such as 127.0.0.1:8081", *address))
	}
	return "http://" + reachable(*address), rest, nil
}

// askAdmin sends a request without a body and returns the answer's.
func askAdmin(method, address string) ([]byte, error) {
	request, err := http.NewRequest(method, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := adminClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no gateway answers at %s; is Forebay running, and --admin its admin address? %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refusal(response)
	}
	const answerBytesMax = 64 << 20
	return io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
}

// printQueue writes the tables of p, those that are not empty.
func printQueue(w io.Writer, p *gateway.QueuePage) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLASS\tMODE\tWAITING\tRUNNING\tSHARE\tBACKLOG\tREFUSED\tDEMOTED")
	for _, c := range p.Classes {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.0f%%\t%s\t%d\t%d\n", c.Name, c.Mode, c.Waiting, c.Running, 100*c.Share, span(c.BacklogMS), c.Refused, c.Demoted)
	}
	if len(p.Tenants) > 0 {
		fmt.Fprintln(t, "\nTENANT\tCLASS\tWAITING\tRUNNING\tDEFICIT\tSERVED")
	}
	for _, n := range p.Tenants {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\n", n.Name, n.Class, n.Waiting, n.Running, span(n.DeficitMS), span(n.ServedMS))
	}
	if len(p.Waiting) > 0 {
		fmt.Fprintln(t, "\nWAITING\tTENANT\tCLASS\tWHY\tWAITED\tSTARTS IN\tPREFILL\tTOKENS")
	}
	for _, r := range p.Waiting {
		class := r.Class
		if r.Demoted {
			class += " (demoted)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", r.ID, r.Tenant, class, r.Why, span(r.WaitedMS), span(r.StartsMS), span(r.PrefillMS), r.Uncached)
	}
	if len(p.Running) > 0 {
		fmt.Fprintln(t, "\nRUNNING\tTENANT\tCLASS\tSINCE\tTOKENS")
	}
	for _, r := range p.Running {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", r.ID, r.Tenant, r.Class, span(r.RanMS), r.Tokens)
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

// span is a time of so many milliseconds, rounded for the eye.
func span(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	if d.Abs() >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
