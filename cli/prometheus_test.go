package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// prometheusTool finds prometheus or promtool; where it is not, the test is
// skipped, unless FOREBAY_TEST_REQUIRE names prometheus.
func prometheusTool(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "prometheus"):
		t.Fatalf("FOREBAY_TEST_REQUIRE names prometheus: %v", err)
	default:
		t.Skipf("SKIPPED: no %s (Debian's package is prometheus)", name)
	}
	return path
}

func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command(prometheusTool(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertsFireAndDoNot(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", alertsFile)
	promtool(t, "", "check", "config", "examples/prometheus/prometheus.yaml")
	promtool(t, "", "test", "rules", "examples/prometheus/alerts_test.yaml", "examples/prometheus/alerts_days_test.yaml")
}

// query asks a Prometheus for an expression's value now, or for what is at
// another path of its API, and returns the data.
func query(t *testing.T, base, path string, form url.Values, data any) error {
	t.Helper()
	response, err := http.PostForm(base+path, form)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	var reply struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &reply); err != nil || reply.Status != "success" {
		return fmt.Errorf("%v %s: %s", err, reply.Error, body)
	}
	return json.Unmarshal(reply.Data, data)
}

type vector struct {
	Result []struct {
		Metric map[string]string
		Value  [2]any
	}
}

// startPrometheus runs one that scrapes p each second with the example's rules.
func startPrometheus(t *testing.T, p *process) string {
	t.Helper()
	dir, port := t.TempDir(), freePorts(t, 1)[0]
	example, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: forebay, static_configs: [{targets: [%q]}]}
  - {job_name: vllm, params: {compat: [vllm]}, static_configs: [{targets: [%q]}]}
`, example, strings.TrimPrefix(p.admin, "http://"), strings.TrimPrefix(p.admin, "http://"))
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(prometheusTool(t, "prometheus"), "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:"+port, "--enable-feature=exemplar-storage", "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("prometheus says:\n%s", text)
		}
		log.Close()
	})
	return "http://127.0.0.1:" + port
}

// mayBeEmpty are metrics that have nothing to say while all goes well, or on a
// machine where energy cannot be read.
var mayBeEmpty = regexp.MustCompile(`cost_|joule|refus|demoted|blocked|capture|outcome!~`)

// TestPrometheusReadsForebay scrapes a running Forebay with the real thing, and
// asks it everything that the dashboards and the rules ask.
func TestPrometheusReadsForebay(t *testing.T) {
	t.Parallel()
	prometheusTool(t, "prometheus")
	p := serve(t, "--telemetry.access_log_off")
	base := startPrometheus(t, p)
	page := func(query string) string {
		response, err := http.Get(p.admin + "/metrics" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	<-p.stream(chatBody("Hello!", map[string]any{"stream": true, "max_tokens": 8}))
	promtool(t, page(""), "check", "metrics")
	ask := func(expr string) (v vector, err error) {
		err = query(t, base, "/api/v1/query", url.Values{"query": {expr}}, &v)
		return v, err
	}
	eventually(t, "Prometheus has seen requests at two scrapes", func() bool {
		<-p.stream(chatBody("Hello!", map[string]any{"stream": true, "max_tokens": 8}))
		v, err := ask(`sum(rate(forebay_requests_total[20s])) > 0 and sum(rate(forebay_engine_steps_total[20s])) > 0`)
		return err == nil && len(v.Result) > 0
	})
	for where, expr := range expressions(t) {
		v, err := ask(expr)
		if err != nil || len(v.Result) == 0 && !mayBeEmpty.MatchString(expr) {
			t.Errorf("%s: %q gives %d series, %v", where, expr, len(v.Result), err)
		}
	}
	var targets struct {
		ActiveTargets []struct{ Health, LastError, ScrapeURL string }
	}
	response, err := http.Get(base + "/api/v1/targets")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var reply struct{ Data json.RawMessage }
	if json.NewDecoder(response.Body).Decode(&reply); json.Unmarshal(reply.Data, &targets) != nil || len(targets.ActiveTargets) != 2 {
		t.Errorf("targets: %s", reply.Data)
	}
	for _, target := range targets.ActiveTargets {
		if target.Health != "up" || target.LastError != "" {
			t.Errorf("%s is %s: %s", target.ScrapeURL, target.Health, target.LastError)
		}
	}
	if v, err := ask(`count(vllm:num_requests_waiting{job="vllm"}) + count(vllm:time_to_first_token_seconds_count)`); err != nil || len(v.Result) != 1 {
		t.Errorf("vLLM's names: %v, %v", v, err)
	}
	p.checkExemplars(base)
	if v, err := ask(`ALERTS{alertstate="firing"}`); err != nil || len(v.Result) > 0 {
		t.Errorf("all is well, and these fire: %v, %v", v, err)
	}
}

// checkExemplars has a request kept, and follows every exemplar that Prometheus
// has to the page of its request.
func (p *process) checkExemplars(base string) {
	t := p.t
	t.Helper()
	text, _ := json.Marshal(chatBody("Hello!", map[string]any{"max_tokens": 8}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Forebay-Capture", "1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	var found []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	eventually(t, "Prometheus has an exemplar", func() bool {
		now := time.Now()
		span := url.Values{"query": {`gen_ai_server_request_duration_seconds_bucket`}, "start": {fmt.Sprint(now.Add(-time.Hour).Unix())}, "end": {fmt.Sprint(now.Add(time.Hour).Unix())}}
		return query(t, base, "/api/v1/query_exemplars", span, &found) == nil && len(found) > 0
	})
	for _, series := range found {
		for _, e := range series.Exemplars {
			var view struct {
				TraceID string `json:"trace_id"`
			}
			response, err := http.Get(p.admin + "/debug/requests/" + e.Labels["request_id"] + "?format=json")
			if err != nil {
				t.Fatal(err)
			}
			if err := json.NewDecoder(response.Body).Decode(&view); err != nil || view.TraceID != e.Labels["trace_id"] || view.TraceID == "" {
				t.Errorf("the exemplar %v resolves to trace %q, %v", e.Labels, view.TraceID, err)
			}
			response.Body.Close()
		}
	}
}
