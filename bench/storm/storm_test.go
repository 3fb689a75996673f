package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStorm is a short storm: each fault once, but for the failover that takes long, of
// which the store's own tests have a quick one.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds forebay")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "redis") {
			t.Fatal("redis-server is required and not installed")
		}
		t.Skip("SKIPPED: redis-server is not installed")
	}
	binary := filepath.Join(t.TempDir(), "forebay")
	if out, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	few := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return f.name == failedOver })
	o := options{binary: binary, length: time.Hour, faults: few, most: len(few), calm: 100 * time.Millisecond, gateways: 2, clients: 8, seed: 1, progress: t.Output()}
	found, err := run(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	found.print(t.Output())
	if len(found.wrong) > 0 || found.ended["whole"] == 0 || found.ended["left in the answer"] == 0 || found.sum.Cached == 0 || len(found.faults) != len(few) {
		t.Errorf("%+v", found)
	}
}

// TestAuditFindsWhatIsMissing: one token, one line, one place or one client's word that
// differs is found.
func TestAuditFindsWhatIsMissing(t *testing.T) {
	for name, change := range map[string]func(*paper){
		"":                              func(*paper) {},
		"the engine says":               func(p *paper) { p.decoded++ },
		"has the number":                func(p *paper) { p.lines = strings.Replace(p.lines, `"seq":2`, `"seq":3`, 1) },
		"lines were counted":            func(p *paper) { p.counted++ },
		"has used":                      func(p *paper) { p.month-- },
		"holds 1 places":                func(p *paper) { p.places++ },
		"forebay_requests_running is 1": func(p *paper) { p.running++ },
		"was told":                      func(p *paper) { p.told.Completion-- },
	} {
		p := paper{decoded: 7, counted: 2, month: 12, told: told{Prompt: 8, Completion: 3}, lines: `{"seq":1,"id":"a","tenant":"roomy","outcome":"ok","prompt_tokens":8,"cached_tokens":6,"computed_tokens":2,"completion_tokens":3,"charged":true}
{"seq":2,"id":"b","tenant":"roomy","outcome":"client_gone","prompt_tokens":8,"computed_tokens":3,"completion_tokens":4,"charged":true}
`}
		p.told.Details.Cached = 6
		change(&p)
		wrong := p.audit(t)
		if name == "" && len(wrong) > 0 || name != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], name)) {
			t.Errorf("%q: %q", name, wrong)
		}
	}
}

// paper is a gateway that exists on paper alone.
type paper struct {
	decoded, counted, month, places, running int
	lines                                    string
	told                                     told
}

func (p *paper) audit(t *testing.T) []string {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/debug/budgets" {
			fmt.Fprintf(w, `{"limits":[{"tenant":"roomy","limit":"tokens_per_month","used":%d},{"tenant":"roomy","limit":"concurrency","used":%d}]}`, p.month, p.places)
			return
		}
		fmt.Fprintf(w, `# HELP x y
forebay_engine_tokens_total{kind="prefill"} 5
forebay_engine_tokens_total{kind="cached"} 6
forebay_engine_tokens_total{kind="decode"} %d
forebay_tokens_total{kind="prompt"} 11
forebay_tokens_total{kind="cached"} 6
forebay_tokens_total{kind="completion"} 7
forebay_usage_lines_total %d
forebay_requests_running %d
`, p.decoded, p.counted, p.running)
	}))
	defer admin.Close()
	g := &gateway{admin: admin.URL, usage: filepath.Join(t.TempDir(), "usage")}
	if err := os.WriteFile(g.usage, []byte(p.lines), 0o600); err != nil {
		t.Fatal(err)
	}
	a := audit{charged: map[string]int{}}
	if err := a.compare(&scene{gateways: []*gateway{g}}, &crowd{told: map[string]told{"a": p.told}}); err != nil {
		t.Fatal(err)
	}
	return a.wrong
}
