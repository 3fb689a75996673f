package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/forebay-io/forebay/gateway/debug"
)

// runUpstream shows the servers that a running Forebay relays to.
func runUpstream(c *console, args []string) error {
	set := newFlagSet("upstream [--admin ADDR] [--json]")
	asJSON := set.Bool("json", false, "print what the page says as JSON")
	base, _, err := c.adminURL(set, args, 0)
	if err != nil {
		return err
	}
	text, err := askAdmin(http.MethodGet, base+debug.QueuePath+"?format=json")
	if err != nil {
		return err
	}
	var page debug.QueuePage
	if err := json.Unmarshal(text, &page); err != nil {
		return fmt.Errorf("%s does not answer as a queue of Forebay does: %w", base, err)
	}
	if *asJSON {
		return json.NewEncoder(c.out).Encode(page.Upstreams)
	}
	if len(page.Upstreams) == 0 {
		_, err = fmt.Fprintln(c.out, "this Forebay runs an engine of its own, and relays to no server")
		return err
	}
	t := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "UPSTREAM\tGROUP\tKIND\tSTATE\tSEQUENCES\tPLACES\tCACHE\tOTHERS\tDELAY\tSTEP\tSERVED\tFAILED\tEJECTED\tWHY")
	for _, u := range page.Upstreams {
		places := strconv.Itoa(u.Places)
		if !u.PlacesExact {
			places += " learned"
		}
		cache := ""
		if u.Cache != nil {
			cache = fmt.Sprintf("%s: %d blocks", u.Cache.State, u.Cache.Blocks)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%.1f\t%v\t%v\t%d\t%d\t%d\t%s\n", u.Name, u.Group, u.Kind, u.State, u.Inside, places, cache, u.Strangers,
			u.Delay.Round(100*time.Microsecond), u.Step.Round(100*time.Microsecond), u.Served, u.Failed, u.Ejected, u.Why)
	}
	return t.Flush()
}

func runUpstreamDrain(c *console, args []string) error {
	return c.setUpstream("drain", "drained", args)
}

func runUpstreamOpen(c *console, args []string) error { return c.setUpstream("open", "open", args) }

// setUpstream sets the mode of the server named by the arguments.
func (c *console) setUpstream(verb, mode string, args []string) error {
	base, names, err := c.adminURL(newFlagSet("upstream "+verb+" URL [--admin ADDR]"), args, 1)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return usageError("upstream " + verb + " needs an upstream's URL, as forebay upstream shows it")
	}
	query := url.Values{"upstream": names, "mode": {mode}}
	if _, err := askAdmin(http.MethodPost, base+debug.UpstreamsPath+"?"+query.Encode()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s is %s\n", names[0], mode)
	return err
}
