package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

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

// expressions are those of every panel and of docs/metrics.md, by where they are.
func expressions(t *testing.T) map[string]string {
	all := map[string]string{}
	text, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for example := range strings.SplitSeq(block[1], "\n\n") {
			comment, expr, _ := strings.Cut(example, "\n")
			all["docs/metrics.md "+comment] = expr
		}
	}
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
