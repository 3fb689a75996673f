package gateway

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// TestThePageOfBudgets: tenants, keys, parts and end users with what they have used and
// have left, also those that sent nothing yet, and what each key used.
func TestThePageOfBudgets(t *testing.T) {
	day := func(n int) budget.Limits { return budget.Limits{TokensPerDay: n} }
	policy := admission.Config{
		Tenants: []admission.Tenant{
			{Name: "acme", Keys: []string{"sk-acme"}, Weight: 1, Limits: day(1000), UserLimits: day(100)},
			{Name: "other", Keys: []string{"sk-other"}, Weight: 1, Limits: budget.Limits{TokensPerDay: 500, DryRun: true}},
			{Name: "free", Keys: []string{"*"}, Weight: 1},
		},
		PartLimits: []admission.PartLimits{{Name: "texts", Tenant: "acme", Route: "completions", Limits: day(300)}, {Name: "elsewhere", Model: "other", Limits: day(1)}},
	}
	keys := identity.Config{Keys: filepath.Join(t.TempDir(), "keys.json")}
	key, _, err := identity.Add(keys.Keys, identity.Draft{Name: "ci", Tenant: "acme", Limits: []string{"tokens_per_day: 200"}}, time.Now(), func(identity.Entry) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for name, section := range map[string]any{"admission": &policy, "identity": &keys} {
		if err := conf.Complete(name, section); err != nil {
			t.Fatal(err)
		}
	}
	source, err := identity.Open(keys, policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigConfig{fake: scripted(wiretest.Script{Pieces: []string{"a", "b"}, CachedTokens: 1}), admission: policy, identity: source.Directory()})
	for _, body := range []string{textBody(`"user":"ann"`), textBody("")} {
		if resp := r.do("POST", "/v1/completions", body, "Authorization", "Bearer "+key); resp.status != 200 {
			t.Fatalf("%d %s", resp.status, resp.body)
		}
	}
	r.do("POST", "/v1/completions", textBody(""), "Authorization", "Bearer sk-other")
	r.settled()
	read := func(query string) (p debug.BudgetsPage, rows string) {
		if err := json.Unmarshal([]byte(r.adminDo("GET", debug.BudgetsPath+"?format=json"+query).body), &p); err != nil {
			t.Fatal(err)
		}
		for _, row := range p.Limits {
			if row.Kind == "user" && len(row.Name) == 24 {
				row.Name = "a hash"
			}
			rows += fmt.Sprintf("%s %s %s %s %v: %v of %v used, %v left\n", row.Tenant, row.Model, strings.TrimSpace(row.Kind+" "+row.Name), row.Limit, row.DryRun, row.Used, row.Allowed, row.Left)
			if row.WholeMS <= 0 || row.WholeMS > 24*3600*1000 {
				t.Errorf("whole in %v ms", row.WholeMS)
			}
		}
		return p, rows
	}
	const acme = `acme fake tenant tokens_per_day false: 6 of 1000 used, 994 left
acme fake key ci tokens_per_day false: 6 of 200 used, 194 left
acme fake route texts tokens_per_day false: 6 of 300 used, 294 left
acme fake user a hash tokens_per_day false: 3 of 100 used, 97 left
acme fake user a hash tokens_per_day false: 3 of 100 used, 97 left
`
	p, rows := read("")
	if rows != acme+"other fake tenant tokens_per_day true: 3 of 500 used, 497 left\n" || p.Shared || p.Degraded || p.More != 0 || time.Since(p.Since) > time.Minute {
		t.Errorf("page %+v, rows\n%s", p, rows)
	}
	use := telemetry.Use{Tenant: "acme", Key: "ci", Requests: 2, Computed: 2, Cached: 2, Completion: 4}
	if len(p.Used) != 2 || p.Used[0] != use || p.Used[1].Tenant != "other" {
		t.Errorf("used %+v", p.Used)
	}
	if p, rows := read("&tenant=acme"); rows != acme || len(p.Used) != 1 {
		t.Errorf("of one tenant %+v\n%s", p, rows)
	}
	if p, rows := read("&tenant=nobody"); rows != "" || len(p.Used) != 0 {
		t.Errorf("of nobody %+v\n%s", p, rows)
	}
}
