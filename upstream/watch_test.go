package upstream

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

func TestReadMetrics(t *testing.T) {
	d := dialectNamed("vllm")
	for page, want := range map[string][2]int{
		"# HELP x\nvllm:num_requests_running{model_name=\"a\",engine=\"0\"} 3.0\nvllm:num_requests_running{engine=\"1\"} 4\nvllm:num_requests_waiting{a=\"} 9\"} 2\n": {7, 2},
		"vllm:num_requests_running 1e1\nvllm:num_requests_waiting 0 1700000000\nother NaN\n\nbad":                                                                     {10, 0},
	} {
		running, waiting, err := readMetrics(strings.NewReader(page), d)
		if err != nil || running != want[0] || waiting != want[1] {
			t.Errorf("%q: %d, %d, %v; want %v", page, running, waiting, err, want)
		}
	}
	for _, page := range []string{"", "vllm:num_requests_running 3\n", "vllm:num_requests_running x\nvllm:num_requests_waiting -1\n"} {
		if _, _, err := readMetrics(strings.NewReader(page), d); err != errNoMetrics {
			t.Errorf("%q: %v", page, err)
		}
	}
}

// TestWindowIsTold: what the server says of its load changes how much it gets, and
// strangers are told of. Refusals count too.
func TestWindowIsTold(t *testing.T) {
	p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		w.Header().Set("Retry-After", "9")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	p.models = listOf("vllm")
	p.pages["/health"] = ""
	p.pages["/metrics"] = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
	e := open(t, Config{URL: p.URL, CheckInterval: 10 * time.Millisecond, MetricsInterval: 50 * time.Millisecond})
	if s := e.State(); s.Places != sequencesUnknown || s.Cost.PrefillToken <= 0 || s.Cost.Base <= 0 || !s.Cost.Valid() {
		t.Errorf("%d places, cost %+v", s.Places, s.Cost)
	}
	if got := chat(t, e, "", wire.Options{}); got.end.Err == nil || got.end.Err.RetryAfter != 9*time.Second {
		t.Errorf("ended with %v", got.end.Err)
	}
	if n := e.State().Places; n != 1 {
		t.Errorf("%d places after a server with one request had no room", n)
	}
	now := time.Duration(wire.Monotonic())
	e.mu.Lock()
	for range 400 {
		now += 100 * time.Millisecond
		e.replicas[0].ledger.window.Metrics(3, 0, now)
	}
	view := e.replicas[0].ledger.window.View(now)
	e.mu.Unlock()
	if view.Alone || view.Strangers < 2.9 {
		t.Errorf("3 sequences of others: %+v", view)
	}
}
