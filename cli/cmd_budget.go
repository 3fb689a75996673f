package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/forebay-io/forebay/gateway/debug"
)

// runBudget shows what the holders of limits at a running Forebay have used and have
// left, of one tenant or of all.
func runBudget(c *console, args []string) error {
	set := newFlagSet("budget [TENANT] [--admin ADDR] [--json]")
	asJSON := set.Bool("json", false, "print what the page says as JSON")
	base, names, err := c.adminURL(set, args, 1)
	if err != nil {
		return err
	}
	query := url.Values{"format": {"json"}}
	if len(names) > 0 {
		query.Set("tenant", names[0])
	}
	text, err := askAdmin(http.MethodGet, base+debug.BudgetsPath+"?"+query.Encode())
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = c.out.Write(append(text, '\n'))
		return err
	}
	var page debug.BudgetsPage
	if err := json.Unmarshal(text, &page); err != nil {
		return fmt.Errorf("%s does not answer as a page of budgets of Forebay does: %w", base, err)
	}
	return printBudgets(c.out, &page)
}

// printBudgets writes the tables of p that are not empty.
func printBudgets(w io.Writer, p *debug.BudgetsPage) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(p.Limits) > 0 {
		fmt.Fprintln(t, "TENANT\tHOLDER\tMODEL\tLIMIT\tALLOWED\tUSED\tLEFT NOW\tWHOLE IN")
	} else {
		fmt.Fprintln(t, "no tenant, key or user has limits here")
	}
	for _, r := range p.Limits {
		holder, limit, whole := strings.TrimSpace(r.Kind+" "+r.Name), r.Limit, "-"
		if r.DryRun {
			limit += " (dry run)"
		}
		if r.WholeMS > 0 {
			whole = (time.Duration(r.WholeMS) * time.Millisecond).Round(100 * time.Millisecond).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Tenant, holder, r.Model, limit, amount(r.Allowed), amount(r.Used), amount(r.Left), whole)
	}
	if len(p.Used) > 0 {
		fmt.Fprintf(t, "\nUSED SINCE %s\tKEY\tREQUESTS\tPROMPT\tCACHED\tGENERATED\tCOST\n", p.Since.Format("2006-01-02 15:04 MST"))
	}
	for _, u := range p.Used {
		key := u.Key
		if key == "" {
			key = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%s\n", u.Tenant, key, u.Requests, u.Computed+u.Cached, u.Cached, u.Completion, amount(u.Cost))
	}
	if p.More > 0 {
		fmt.Fprintf(t, "\n%d more holders of limits are left out; name a tenant to see its own\n", p.More)
	}
	if p.Degraded {
		fmt.Fprintln(t, "\nthe shared store of budgets does not answer; this is what this gateway knows")
	}
	return t.Flush()
}

// amount writes a number of requests, tokens or money without needless digits.
func amount(x float64) string {
	if x == float64(int64(x)) {
		return strconv.FormatInt(int64(x), 10)
	}
	if x >= 100 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	four, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64) // digits
	return strconv.FormatFloat(four, 'f', -1, 64)                         // and no exponent
}
