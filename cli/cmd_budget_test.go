package cli

import (
	"net/http"
	"testing"
)

func TestBudgetsArePrinted(t *testing.T) {
	const page = `{"shared":true,"degraded":true,"limits":[{"tenant":"acme","model":"m","kind":"tenant","limit":"requests_per_minute","allowed":60,"used":2.5,"left":7,"whole_ms":2510},` +
		`{"tenant":"acme","model":"m","kind":"key","name":"ci","limit":"cost_per_day","dry_run":true,"allowed":20,"used":0.001234567,"left":19.99876,"whole_ms":7200000},` +
		`{"tenant":"acme","model":"m","kind":"tenant","limit":"concurrency","allowed":3,"used":1,"left":2,"whole_ms":0}],"more":3,` +
		`"used":[{"tenant":"acme","key":"ci","requests":12,"refunded":1,"computed_tokens":700,"cached_tokens":300,"completion_tokens":42,"cost":0.00002512345},{"tenant":"free","key":"","requests":1}],"since":"2026-03-01T09:00:00Z"}`
	path := ""
	serve := func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.String()
		w.Write([]byte(page))
	}
	got, err := asked(t, serve, runBudget, "acme")
	want := `TENANT  HOLDER  MODEL  LIMIT                   ALLOWED  USED      LEFT NOW  WHOLE IN
acme    tenant  m      requests_per_minute     60       2.5       7         2.5s
acme    key ci  m      cost_per_day (dry run)  20       0.001235  20        2h0m0s
acme    tenant  m      concurrency             3        1         2         -

USED SINCE 2026-03-01 09:00 UTC  KEY  REQUESTS  PROMPT  CACHED  GENERATED  COST
acme                             ci   12        1000    300     42         0.00002512
free                             -    1         0       0       0          0

3 more holders of limits are left out; name a tenant to see its own

the shared store of budgets does not answer; this is what this gateway knows
`
	if err != nil || got != want || path != "GET /debug/budgets?format=json&tenant=acme" {
		t.Errorf("%v, asked %s\n%s\nwant\n%s", err, path, got, want)
	}
	if got, err = asked(t, serve, runBudget, "--json"); err != nil || got != page+"\n" || path != "GET /debug/budgets?format=json" {
		t.Errorf("%v, asked %s\n%s", err, path, got)
	}
}
