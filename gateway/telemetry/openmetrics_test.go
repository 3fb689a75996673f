package telemetry

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const openMetrics = "application/openmetrics-text; version=1.0.0"

// suffixes are the endings that a family's samples may have, by its type.
var suffixes = map[string][]string{
	"counter": {"_total", "_created"}, "gauge": {""}, "histogram": {"_bucket", "_count", "_sum", "_created"},
	"summary": {"", "_count", "_sum", "_created"}, "info": {"_info"}, "stateset": {""}, "unknown": {""},
}

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})? (\S+)( # \{[^}]*\} \S+(?: \S+)?)?$`)

// openMetricsFaults reads a page as a strict parser does (OpenMetrics 1.0): each
// family is declared once, before its samples and apart from those of others, and no
// series comes twice.
func openMetricsFaults(page string) (faults []string) {
	fault := func(line, format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...)+": "+line)
	}
	lines := strings.Split(page, "\n")
	if len(lines) < 2 || lines[len(lines)-2] != "# EOF" || lines[len(lines)-1] != "" {
		return []string{"the page does not end with # EOF"}
	}
	family, kind, sampled := "", "", false
	families, series := map[string]bool{}, map[string]bool{}
	for _, line := range lines[:len(lines)-2] {
		if words := strings.SplitN(line, " ", 4); words[0] == "#" {
			if words[2] != family {
				if families[words[2]] {
					fault(line, "the family comes twice")
				}
				family, kind, sampled = words[2], "unknown", false
				families[family] = true
			} else if sampled {
				fault(line, "the family is declared after its samples")
			}
			if words[1] == "TYPE" {
				kind = words[3]
			}
			continue
		}
		sampled = true
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			fault(line, "not a sample")
			continue
		}
		suffix, own := strings.CutPrefix(m[1], family)
		if !own || !slices.Contains(suffixes[kind], suffix) {
			fault(line, "no sample of the %s %s", kind, family)
		}
		if series[m[1]+m[2]] {
			fault(line, "the series comes twice")
		}
		series[m[1]+m[2]] = true
		if v, err := strconv.ParseFloat(m[3], 64); err != nil || suffix == "_total" && !(v >= 0) {
			fault(line, "not a value")
		}
		if m[4] != "" && suffix != "_bucket" && suffix != "_total" {
			fault(line, "an exemplar has no place here")
		}
	}
	return faults
}

func TestStrictParserAcceptsThePages(t *testing.T) {
	r := quiet(t, &Levels{})
	r.OfferTo(func(*Record) bool { return true })
	r.ResolveExemplars(func(string) bool { return true })
	rec := fullRecord()
	rec.Class = "quotes\" back\\slashes\nlines"
	r.Finish(rec)
	for _, query := range []string{"", "?compat=vllm"} {
		page := scrape(t, r, query, openMetrics)
		for _, f := range openMetricsFaults(page) {
			t.Errorf("%q: %s", query, f)
		}
		if query == "" && !strings.Contains(page, "# {") {
			t.Error("no exemplar was checked")
		}
	}
	for _, name := range []string{"go_memstats_heap_alloc_bytes", "go_memstats_alloc_bytes_total", "process_open_fds"} {
		if _, ok := number(scrape(t, r, "", openMetrics), name); !ok {
			t.Errorf("no %s", name)
		}
	}
}

// The check itself must be able to fail.
func TestStrictParserRefuses(t *testing.T) {
	for page, want := range map[string]string{
		"# TYPE a gauge\na 1\n": "EOF",
		"# TYPE a gauge\na 1\n# TYPE a counter\na_total 1\n# EOF\n":              "after its samples",
		"# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\na 2\n# EOF\n": "family comes twice",
		"# TYPE a gauge\na 1\nb 1\n# EOF\n":                                      "no sample of",
		"# TYPE a counter\na 1\n# EOF\n":                                         "no sample of",
		"# TYPE a gauge\na{b=\"c\"} 1\na{b=\"c\"} 2\n# EOF\n":                    "series comes twice",
		"# TYPE a counter\na_total -1\n# EOF\n":                                  "not a value",
		"# TYPE a gauge\na 1 # {id=\"x\"} 1\n# EOF\n":                            "no place here",
	} {
		if faults := openMetricsFaults(page); len(faults) == 0 || !strings.Contains(faults[0], want) {
			t.Errorf("%q: %q, want %q", page, faults, want)
		}
	}
}

// Whatever family of a library is named so, its counter wins.
func TestNoFamilyHasACountersName(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_bytes"}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "a_bytes_total"}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "b_bytes"}),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "c_total"}),
	)
	all, err := apart{reg}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range all {
		names = append(names, f.GetName())
	}
	if want := []string{"a_bytes_total", "b_bytes", "c_total"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if all[0].GetType() != dto.MetricType_COUNTER {
		t.Errorf("%v", all[0])
	}
}

func TestSpansAreCounted(t *testing.T) {
	expectNumbers(t, scrape(t, fullRecorder(t), "", ""), map[string]float64{
		"forebay_spans_exported_total": 101, `forebay_spans_dropped_total{reason="failed"}`: 102, `forebay_spans_dropped_total{reason="queue_full"}`: 103,
		`forebay_spans_dropped_total{reason="stopped"}`: 104, "forebay_spans_attributes_dropped_total": 105, "forebay_spans_queued": 106,
	})
}
