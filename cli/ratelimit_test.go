package cli

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvoyAsksForLimits: a real Envoy in front of another server asks the gateway
// about each request, by its key; what it was given counts at the gateway too.
func TestEnvoyAsksForLimits(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "other") }))
	defer other.Close()
	dir, ports := t.TempDir(), freePorts(t, 2)
	limits := filepath.Join(t.TempDir(), "limits.sock")
	control, front := "127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	writePolicy(t, dir, "mesh.yaml", fmt.Sprintf(`mesh:
  listeners: [{name: front, address: %q, limits: limits}]
  routes: [{name: all, cluster: other}]
  clusters:
  - {name: other, endpoints: [%q]}
  - {name: limits, endpoints: ["unix:%s"], http2: true}
`, strings.TrimPrefix(front, "http://"), strings.TrimPrefix(other.URL, "http://"), limits))
	startControl(t, dir, control)
	startEnvoy(t, control)
	p := serve(t, append(slow, "--envoy.listen", "unix:"+limits, "--admission.tenants", "[{name: a, keys: [k], limits: {requests_per_minute: 6}}, {name: b, keys: [free]}]")...)
	ask := func(key string) (int, http.Header) {
		r, _ := http.NewRequest("GET", front+"/v1/models", nil)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, nil
		}
		response.Body.Close()
		return response.StatusCode, response.Header
	}
	eventually(t, "Envoy serves", func() bool { status, _ := ask("free"); return status == http.StatusOK })
	// 6 a minute are one at once, and the next after 10 s.
	if status, header := ask("k"); status != http.StatusOK || !strings.HasPrefix(header.Get("X-Ratelimit-Limit"), "6") {
		t.Errorf("within the limit: %d, %v", status, header)
	}
	if status, header := ask("k"); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("over the limit: %d, %v", status, header)
	}
	p.key = "k"
	if a := p.ask(chatBody("Hello", map[string]any{"max_tokens": 3})); a.status != http.StatusTooManyRequests {
		t.Errorf("the gateway itself: %d, %s", a.status, a.raw)
	}
	for range 5 {
		if status, _ := ask("free"); status != http.StatusOK {
			t.Errorf("a tenant without limits: %d", status)
		}
	}
	if over, ok := p.metric(`forebay_ratelimit_decisions_total{result="over_limit"}`), p.metric(`forebay_ratelimit_decisions_total{result="ok"}`); over != 1 || ok != 1 {
		t.Errorf("the metrics tell of %v over the limit and %v within", over, ok)
	}
	if timed := p.metric(`forebay_proxy_answer_seconds_count{service="rate_limit"}`); timed < 7 {
		t.Errorf("the time of %v answers was counted", timed)
	}
	p.cmd.Process.Signal(os.Interrupt)
	if status := p.exit(); status != 0 {
		t.Errorf("it ended with %d", status)
	}
	if _, err := net.Dial("unix", limits); err == nil {
		t.Error("the socket stayed")
	}
}
