package cli

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/gateway/spans/spanstest"
)

// TestOneTraceFromEnvoyToKernel: a real Envoy begins a trace, and its spans, the
// gateway's, the engine's and those of the kernels arrive at one collector as one trace,
// each with its parent.
func TestOneTraceFromEnvoyToKernel(t *testing.T) {
	t.Parallel()
	envoy, collector := envoyProgram(t), spanstest.New(t)
	text, err := os.ReadFile("examples/mesh/envoy-traces.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, port := t.TempDir(), freePorts(t, 1)[0]
	spansPort := collector.GRPC[strings.LastIndex(collector.GRPC, ":")+1:]
	writePolicy(t, dir, "envoy.yaml", strings.NewReplacer("/run/forebay", dir, "port_value: 10000", "port_value: "+port, "port_value: 4317", "port_value: "+spansPort).Replace(string(text)))
	serve(t, "--listen_socket", filepath.Join(dir, "api.sock"), "--spans.endpoint", collector.GRPC)
	front := &process{t: t, ended: make(chan struct{}), url: "http://127.0.0.1:" + port}
	front.cmd = exec.Command(envoy, "-c", filepath.Join(dir, "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn")
	front.cmd.Stdout, front.cmd.Stderr = front, front
	front.begin()
	eventually(t, "Envoy leads to the gateway", func() bool { return front.status("/v1/models") == http.StatusOK })
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, front.url+"/v1/chat/completions", strings.NewReader(`{"model":"forebay-demo","max_tokens":8,"messages":[{"role":"user","content":"Hello"}]}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Forebay-Capture", "1")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	// chain follows parents from a span up to the first one.
	chain := func(all []spanstest.Span, from *spanstest.Span) (names []string) {
		for from != nil && len(names) < 20 {
			names = append(names, from.Name)
			var parent *spanstest.Span
			for i := range all {
				if all[i].ID == from.Parent && all[i].TraceID == from.TraceID {
					parent = &all[i]
				}
			}
			from = parent
		}
		return names
	}
	var got []string
	eventually(t, "the trace has arrived, from Envoy to the engine", func() bool {
		all := collector.Spans()
		for i := range all {
			if all[i].Name == "decode" {
				got = chain(all, &all[i])
			}
		}
		return len(got) >= 6
	})
	if want := "decode < engine forebay-demo < chat forebay-demo < POST /v1/chat/completions < "; !strings.HasPrefix(strings.Join(got, " < "), want) {
		t.Errorf("the chain is %v", got)
	}
	all := collector.Spans()
	trace := ""
	for _, s := range all {
		if s.Name == "decode" {
			trace = s.TraceID
		}
	}
	checkSteps(t, all, trace)
}
