package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

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
	fmt.Fprintln(t, "PAGES\tUSED\tPINNED\tCACHED\tFREE\tTOKENS EACH\tBYTES EACH")
	fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\n", p.Pages, p.PagesUsed, p.PagesPinned, p.PagesCached, p.PagesFree, p.PageTokens, p.PageBytes)
	if d := p.Disk; d != nil {
		fmt.Fprintln(t, "\nBLOCKS ON DISK\tBYTES\tREAD\tWRITTEN\tDROPPED\tDAMAGED")
		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%d\t%d\n", d.Blocks, size(int(d.Bytes)), d.Read, d.Written, d.Dropped, d.Corrupted)
	}
	printHeld(t, p)
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

// printHeld writes what the pages hold.
func printHeld(t io.Writer, p *debug.CachePage) {
	if p.Held.Error != "" {
		fmt.Fprintf(t, "\nthe engine did not tell what its pages hold: %s\n", p.Held.Error)
	}
	if len(p.Held.Tenants) > 0 {
		fmt.Fprintln(t, "\nMEMORY\tTENANT\tPAGES USED\tPINNED\tCACHED")
	}
	for _, h := range p.Held.Tenants {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", size((h.Used+h.Cached)*p.PageBytes), h.Tenant, h.Used, h.Pinned, h.Cached)
	}
	if len(p.Held.Prefixes) > 0 {
		fmt.Fprintln(t, "\nBEGINNING\tTENANT\tTOKENS\tUSES\tPINNED")
	}
	for _, h := range p.Held.Prefixes {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", h.Hash, h.Tenant, h.Tokens, h.Uses, map[bool]string{true: "yes", false: "no"}[h.Pinned])
	}
	if len(p.Held.Pins) > 0 {
		fmt.Fprintln(t, "\nPINNED\tTENANT\tTOKENS\tENDS IN")
	}
	for _, h := range p.Held.Pins {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", h.Hash, h.Tenant, h.Tokens, (time.Duration(h.LeftMS) * time.Millisecond).Round(time.Second))
	}
	if p.PinsYielded > 0 {
		fmt.Fprintf(t, "\n%d pins ended early, for a prompt that needed all pages\n", p.PinsYielded)
	}
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
