package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay-io/forebay/internal/wire"
)

// Levels are the gauges of this instant, read from the state that owns them.
type Levels struct {
	RequestsRunning int
	RequestsWaiting int
	Engine          *wire.State // nil where there is none yet
}

type metrics struct {
	requests   *prometheus.CounterVec // route, class, outcome
	tokens     *prometheus.CounterVec // kind
	clientGone prometheus.Counter
	firstToken *prometheus.HistogramVec // route
	perToken   *prometheus.HistogramVec
	queue      *prometheus.HistogramVec
	total      *prometheus.HistogramVec
}

var secondsBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

func newMetrics(reg *prometheus.Registry, levels func() Levels) *metrics {
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: secondsBuckets}, []string{"route"})
	}
	m := &metrics{
		requests:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_requests_total", Help: "Finished requests by outcome."}, []string{"route", "class", "outcome"}),
		tokens:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_tokens_total", Help: "Tokens of requests that ran and have finished: prompt, cached (a part of prompt), completion."}, []string{"kind"}),
		clientGone: prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_client_gone_total", Help: "Requests whose client left before the answer was whole."}),
		firstToken: histogram("forebay_time_to_first_token_seconds", "From arrival to the first content written, once for each request that got content."),
		perToken:   histogram("forebay_time_per_output_token_seconds", "Mean time between the tokens of a choice, once for each request with a second one."),
		queue:      histogram("forebay_queue_seconds", "From the end of preparing to admission."),
		total:      histogram("forebay_request_seconds", "From arrival to the end of the answer."),
	}
	reg.MustRegister(m.requests, m.tokens, m.clientGone, m.firstToken, m.perToken, m.queue, m.total, levelCollector{levels})
	return m
}

func (m *metrics) observe(r *Record) {
	m.requests.WithLabelValues(r.Route, r.Class, r.Outcome.String()).Inc()
	if r.Dispatched != 0 {
		m.tokens.WithLabelValues("prompt").Add(float64(r.PromptTokens))
	}
	m.tokens.WithLabelValues("cached").Add(float64(r.CachedTokens))
	m.tokens.WithLabelValues("completion").Add(float64(r.CompletionTokens))
	if r.Outcome == ClientGone {
		m.clientGone.Inc()
	}
	m.total.WithLabelValues(r.Route).Observe(seconds(r.Finished - r.Arrived))
	if r.Admitted != 0 {
		m.queue.WithLabelValues(r.Route).Observe(seconds(r.Admitted - r.Prepared))
	}
	if d := r.FirstTokenDelay(); d > 0 {
		m.firstToken.WithLabelValues(r.Route).Observe(seconds(d))
	}
	if d := r.TokenTime(); d > 0 {
		m.perToken.WithLabelValues(r.Route).Observe(d / 1e9)
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// levelCollector reads Levels at each scrape and holds no state of its own.
type levelCollector struct{ levels func() Levels }

var (
	descRunning   = desc("forebay_requests_running", "Requests admitted and not yet finished.")
	descWaiting   = desc("forebay_requests_waiting", "Requests waiting for admission.")
	descUp        = desc("forebay_engine_up", "1 when the engine reports no error.")
	descPagesUsed = desc("forebay_kv_pages_used", "Pages referenced by a sequence.")
	descPagesFree = desc("forebay_kv_pages_free", "Pages that hold nothing.")
	descPagesKept = desc("forebay_kv_pages_cached", "Unreferenced pages kept for reuse.")
	descSequences = desc("forebay_engine_sequences", "Sequences in the engine: running, waiting and paused.")
	descSteps     = desc("forebay_engine_steps_total", "Steps since the engine started.")
	descNonFinite = desc("forebay_engine_nonfinite_total", "Rows ended because the model gave NaN or infinity.")
	descPreempted = desc("forebay_engine_preempted_total", "Times a sequence lost its pages and was computed again.")
)

func desc(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

// Describe implements prometheus.Collector.
func (levelCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRunning, descWaiting, descUp, descPagesUsed, descPagesFree, descPagesKept, descSequences, descSteps, descNonFinite, descPreempted} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c levelCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.levels()
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(descRunning, l.RequestsRunning)
	gauge(descWaiting, l.RequestsWaiting)
	s := l.Engine
	if s == nil {
		s = &wire.State{Err: wire.Errorf(wire.Unavailable, "no engine yet")}
	}
	up := 1
	if s.Err != nil {
		up = 0
	}
	gauge(descUp, up)
	gauge(descPagesUsed, s.PagesUsed)
	gauge(descPagesFree, s.PagesFree)
	gauge(descPagesKept, s.PagesCached)
	gauge(descSequences, s.Running+s.Waiting+s.Paused)
	counter(descSteps, s.Step)
	counter(descNonFinite, s.NonFinite)
	counter(descPreempted, s.Preempted)
}
