package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/gateway/siblings"
)

// runCache shows what the cache of a running Forebay holds, and what its siblings do.
func runCache(c *console, args []string) error {
	set := newFlagSet("cache [--admin ADDR] [--json]")
	asJSON := set.Bool("json", false, "print what the page says as JSON")
	base, _, err := c.adminURL(set, args, 0)
	if err != nil {
		return err
	}
	text, err := askAdmin(http.MethodGet, base+debug.CachePath+"?format=json")
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = c.out.Write(append(text, '\n'))
		return err
	}
	var page debug.CachePage
	if err := json.Unmarshal(text, &page); err != nil {
		return fmt.Errorf("%s does not answer as a cache of Forebay does: %w", base, err)
	}
	return printCache(c.out, &page)
}

// printCache writes the tables of p that are not empty.
func printCache(w io.Writer, p *debug.CachePage) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PAGES\tUSED\tCACHED\tFREE\tTOKENS EACH")
	fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\n", p.Pages, p.PagesUsed, p.PagesCached, p.PagesFree, p.PageTokens)
	if len(p.Hits) > 0 {
		fmt.Fprintln(t, "\nHIT RATE\tTENANT\tCLASS\tREQUESTS\tPROMPT TOKENS\tFROM THE CACHE")
	}
	for _, h := range p.Hits {
		fmt.Fprintf(t, "%.0f%%\t%s\t%s\t%d\t%d\t%d\n", 100*h.Rate(), h.Tenant, h.Class, h.Requests, h.PromptTokens, h.CachedTokens)
	}
	if p.View != nil {
		printSiblings(t, p.View)
	}
	return t.Flush()
}

func printSiblings(t io.Writer, v *siblings.View) {
	up, down := "Redis answers", "Redis does not answer: requests stay here"
	if v.Direct {
		up, down = "Siblings answer", "No sibling answers: requests stay here"
	}
	if !v.StoreUp {
		up = down
	}
	fmt.Fprintf(t, "\nTHIS REPLICA\tADDRESS\tBLOCKS TOLD\tBLOCKS KNOWN\tHOPS OUT\tREFUSED\tFAILED\tHOPS IN\n")
	fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", v.Name, v.Address, v.Own, v.Blocks, v.Hops, v.Refused, v.Failed, v.Taken)
	if len(v.Siblings) > 0 {
		fmt.Fprintln(t, "\nSIBLING\tADDRESS\tSTATE\tREPORT\tWAIT\tRUNNING\tWAITING\tPAGES FREE\tBLOCKS KNOWN\tHOPS\tFAILED")
	}
	for _, s := range v.Siblings {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d of %d\t%d\t%d\t%d\n", s.Name, s.Address, stateOf(&s), millis(s.AgeMS), millis(s.WaitMS), s.Running, s.Waiting, s.PagesFree, s.Pages, s.Blocks, s.Hops, s.Failed)
	}
	fmt.Fprint(t, "\nPLACED")
	for _, p := range v.Placed {
		fmt.Fprintf(t, "  %s %d", p.Why, p.Count)
	}
	fmt.Fprintf(t, "\n%s\n", up)
}

func stateOf(s *siblings.SiblingView) string {
	switch {
	case !s.Ready:
		return "not ready"
	case s.Avoided:
		return "avoided"
	case !s.Synced:
		return "its blocks are being fetched"
	}
	return "ready"
}
