package main

import (
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

	"github.com/goccy/go-yaml"
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

const alertsFile = "examples/prometheus/alerts.yaml"

type ruleFile struct {
	Groups []struct {
		Rules []struct{ Alert, Record, Expr string }
	}
}

// rules are the expressions of the example's rules, by the rule's name.
func rules(t *testing.T) (alerts, records map[string]string) {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	var file ruleFile
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	alerts, records = map[string]string{}, map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				alerts[r.Alert] = r.Expr
			} else {
				records[r.Record] = r.Expr
			}
		}
	}
	return alerts, records
}

// panel is what the tests look at of a dashboard's panel.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, RefID string }
}

// dashboard is one of the examples.
type dashboard struct {
	UID, Title string
	Panels     []panel
	Templating struct{ List []struct{ Name string } }
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, _ := filepath.Glob("examples/grafana/*.json")
	all := map[string]dashboard{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		var d dashboard
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = d
	}
	if len(all) < 4 {
		t.Fatalf("%d dashboards", len(all))
	}
	return all
}

// variables are what Grafana would put in.
var variables = strings.NewReplacer("$job", ".*", "$instance", ".*", "$class", "interactive", "$__rate_interval", "20s", "$__range", "1m")

// expressions are those of every panel, by where they are.
func expressions(t *testing.T) map[string]string {
	all := map[string]string{}
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				all[fmt.Sprintf("%s %q %s", name, p.Title, q.RefID)] = variables.Replace(q.Expr)
			}
		}
	}
	return all
}

var (
	// promised is a name in the tables of docs/metrics.md, with its kind.
	promised = regexp.MustCompile("(?m)^\\| `([a-z_:]+)` \\| (counter|gauge|histogram) \\|")
	// metricName is what may be a metric's name in an expression.
	metricName = regexp.MustCompile(`\b(?:forebay|gen_ai|vllm)[_:][a-z0-9_:]+`)
	// grouping is where such a word is a label or a label's value.
	grouping = regexp.MustCompile(`(?:by|without|on|ignoring)\s*\([^)]*\)|\{[^}]*\}`)
)

// names are the metrics of an expression, without the suffixes of histograms.
func names(expr string, kinds map[string]string) (all []string) {
	for _, name := range metricName.FindAllString(grouping.ReplaceAllString(expr, " "), -1) {
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if whole, cut := strings.CutSuffix(name, suffix); cut && kinds[whole] == "histogram" {
				name = whole
			}
		}
		all = append(all, name)
	}
	return all
}

// TestDashboardsAndAlertsNameWhatExists: every metric in the examples is in
// docs/metrics.md, which a test of telemetry holds equal to the page.
func TestDashboardsAndAlertsNameWhatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, m := range promised.FindAllStringSubmatch(string(text), -1) {
		kinds[m[1]] = m[2]
	}
	alerts, records := rules(t)
	all := expressions(t)
	for name := range records {
		kinds[name] = "record"
	}
	for _, more := range []map[string]string{alerts, records} {
		for name, expr := range more {
			all[name] = expr
		}
	}
	used := 0
	for where, expr := range all {
		for _, name := range names(expr, kinds) {
			if used++; kinds[name] == "" {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
		if kinds := names(expr, kinds); len(kinds) == 0 && !strings.HasPrefix(expr, "up{") && !strings.Contains(expr, "process_") {
			t.Errorf("%s: %q names no metric of ours", where, expr)
		}
	}
	if used < 100 || len(names("forebay_nothing_total", kinds)) != 1 {
		t.Errorf("%d names were looked for", used)
	}
	tests, err := os.ReadFile("examples/prometheus/alerts_test.yaml")
	days, errDays := os.ReadFile("examples/prometheus/alerts_days_test.yaml")
	if err != nil || errDays != nil {
		t.Fatal(err, errDays)
	}
	for name := range alerts {
		cases := regexp.MustCompile("alertname: "+name+"[ \n]").Split(string(tests)+string(days), -1)
		fires := slices.ContainsFunc(cases[1:], func(s string) bool { return strings.Contains(strings.SplitN(s, "- alertname", 2)[0], "exp_labels") })
		if !fires {
			t.Errorf("no test has %s firing", name)
		}
	}
}

// TestDashboardsAreWhole: what Grafana would only show as an empty or a
// crooked panel.
func TestDashboardsAreWhole(t *testing.T) {
	t.Parallel()
	uids := map[string]string{}
	for name, d := range dashboards(t) {
		if other := uids[d.UID]; d.UID == "" || d.Title == "" || other != "" {
			t.Errorf("%s: uid %q (of %q too), title %q", name, d.UID, other, d.Title)
		}
		uids[d.UID] = name
		declared := []string{"__rate_interval"}
		for _, v := range d.Templating.List {
			declared = append(declared, v.Name)
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W == 0 || p.GridPos.H == 0 {
				t.Errorf("%s: panel %+v", name, p)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q lies on %q", name, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if queries := p.Type != "row" && p.Type != "text" && p.Type != "alertlist"; queries != (len(p.Targets) > 0) {
				t.Errorf("%s: %s panel %q has %d queries", name, p.Type, p.Title, len(p.Targets))
			}
			for _, q := range p.Targets {
				for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(q.Expr, -1) {
					if !slices.Contains(declared, v[1]) {
						t.Errorf("%s: %q uses $%s, which is not declared", name, p.Title, v[1])
					}
				}
			}
		}
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
var mayBeEmpty = regexp.MustCompile(`cost_|joule|refused|demoted|blocked|capture|token_interval|outcome!~`)

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
	if v, err := ask(`ALERTS{alertstate="firing"}`); err != nil || len(v.Result) > 0 {
		t.Errorf("all is well, and these fire: %v, %v", v, err)
	}
}
