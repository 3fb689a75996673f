package telemetry

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// spec is one metric: its name and labels are a promise to dashboards and
// alerts. Every label's values are a closed or a configured set.
type spec struct {
	name, kind, help string
	labels           []string
	buckets          []float64 // of a histogram
	desc             *prometheus.Desc
}

// Kinds of metrics, as the exposition formats call them.
const (
	counterKind   = "counter"
	gaugeKind     = "gauge"
	histogramKind = "histogram"
)

// catalogue has all our metrics; docs/metrics.md is made from it. It is complete
// before main begins and never changes.
var catalogue []*spec

func define(kind, name, help string, labels []string, buckets []float64) *spec {
	s := &spec{name: name, kind: kind, help: help, labels: labels, buckets: buckets, desc: prometheus.NewDesc(name, help, labels, nil)}
	catalogue = append(catalogue, s)
	return s
}

func counter(name, help string, labels ...string) *spec {
	return define(counterKind, name, help, labels, nil)
}

func gauge(name, help string, labels ...string) *spec {
	return define(gaugeKind, name, help, labels, nil)
}

func distribution(buckets []float64, name, help string, labels ...string) *spec {
	return define(histogramKind, name, help, labels, buckets)
}

// vector is a counter that is incremented where the events happen.
func (s *spec) vector() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: s.name, Help: s.help}, s.labels)
}

// value is the metric with the value v.
func (s *spec) value(v float64, labels ...string) prometheus.Metric {
	kind := prometheus.GaugeValue
	if s.kind == counterKind {
		kind = prometheus.CounterValue
	}
	return prometheus.MustNewConstMetric(s.desc, kind, v, labels...)
}

// Bucket bounds. The gen_ai metrics have those of the OpenTelemetry conventions and
// more: smaller ones because a small model beside its client answers quickly, larger
// ones because batch requests may wait a minute by design.
var (
	firstTokenBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60, 120}
	tokenBuckets      = []float64{.0005, .001, .002, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}
	requestBuckets    = []float64{.0025, .005, .01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68}
	refusalBuckets    = []float64{.00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	ratioBuckets      = []float64{.1, .25, .5, .7, .8, .9, .95, 1, 1.05, 1.1, 1.2, 1.35, 1.5, 2, 3, 5, 10}
	secondsBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	stepBuckets       = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	gapBuckets        = []float64{.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .1}
	rowBuckets        = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}
	tokensBuckets     = []float64{0, 1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}
	lengthBuckets     = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072}
)

// reference is a Markdown table of the metrics, by name.
func reference(specs []*spec) string {
	sorted := slices.Clone(specs)
	slices.SortFunc(sorted, func(a, b *spec) int { return strings.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString("| metric | kind | labels | |\n|---|---|---|---|\n")
	for _, s := range sorted {
		b.WriteString("| `" + s.name + "` | " + s.kind + " | " + strings.Join(s.labels, ", ") + " | " + strings.ReplaceAll(s.help, "|", "\\|") + " |\n")
	}
	return b.String()
}
