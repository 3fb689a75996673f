package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/conf"
)

// asked runs a command against a server of handler and returns what it prints.
func asked(t *testing.T, handler http.HandlerFunc, run func(*console, []string) error, args ...string) (string, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	name := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	failed := run(&console{out: out, err: out}, append(args, "--admin", strings.TrimPrefix(server.URL, "http://")))
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), failed
}

func TestQueueIsPrinted(t *testing.T) {
	const page = `{"classes":[{"name":"interactive","mode":"open","waiting":1,"running":1,"share":0.75,"backlog_ms":1250.4,"margin":1.154,"refused":3,"demoted":0,"revoked":1},{"name":"offline","mode":"drained"}],
		"tenants":[{"name":"acme","class":"interactive","waiting":1,"running":1,"deficit_ms":-20,"served_ms":61000}],
		"waiting":[{"id":"abc","tenant":"acme","class":"interactive","demoted":true,"waited_ms":12,"starts_ms":340,"prefill_ms":80,"uncached_tokens":512,"why":"prefill"}],
		"running":[{"id":"def","tenant":"acme","class":"interactive","ran_ms":2500,"tokens":17,"first_token":true}],"brownout":2,"limiter_degraded":true}`
	serve := func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.String() != "/debug/queue?format=json" {
			t.Errorf("asked %s %s", r.Method, r.URL)
		}
		w.Write([]byte(page))
	}
	got, err := asked(t, serve, runQueue)
	want := `CLASS        MODE     WAITING  RUNNING  SHARE  BACKLOG  MARGIN  REFUSED  DEMOTED  REVOKED
interactive  open     1        1        75%    1.25s    1.15    3        0        1
offline      drained  0        0        0%     0s       0.00    0        0        0

TENANT  CLASS        WAITING  RUNNING  DEFICIT  SERVED
acme    interactive  1        1        -20ms    1m1s

WAITING  TENANT  CLASS                  WHY      WAITED  STARTS IN  PREFILL  TOKENS
abc      acme    interactive (demoted)  prefill  12ms    340ms      80ms     512

RUNNING  TENANT  CLASS        SINCE  TOKENS
def      acme    interactive  2.5s   17

overload: step 2 of the ladder
the shared store of budgets does not answer
`
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if got, err = asked(t, serve, runQueue, "--json"); err != nil || got != page+"\n" {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestQueueModesAreSet(t *testing.T) {
	var path string
	serve := func(w http.ResponseWriter, r *http.Request) {
		if path = r.Method + " " + r.URL.String(); strings.Contains(path, "gold") {
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"error":{"message":"there is no class gold"}}`))
		}
	}
	for mode, run := range map[string]func(*console, []string) error{"open": runQueueOpen, "paused": runQueuePause, "drained": runQueueDrain} {
		got, err := asked(t, serve, run, "offline")
		if err != nil || got != "offline is "+mode+"\n" || path != "POST /debug/queue/offline?mode="+mode {
			t.Errorf("%s: %v, %q, asked %s", mode, err, got, path)
		}
	}
	if _, err := asked(t, serve, runQueueDrain, "gold"); err == nil || !strings.Contains(err.Error(), "there is no class gold") {
		t.Errorf("an unknown class: %v", err)
	}
}

func TestExamplesAreValid(t *testing.T) {
	names, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal("no examples", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := conf.Of(new(Config)).Load(conf.Source{FileName: name, File: text}); err != nil {
			t.Error(err)
		}
	}
}
