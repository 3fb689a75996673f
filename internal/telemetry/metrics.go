package telemetry

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay-io/forebay/internal/wire"
)

// Levels are the gauges of this instant, read from the state that owns them.
type Levels struct {
	RequestsRunning int
	RequestsWaiting int
	Engine          *wire.State // nil where there is none yet
	Classes         []ClassLevel
	// StepMargin is how far predictions of the engine's steps are stretched.
	StepMargin float64
	Lengths    LengthLevel
	// Brownout is the step of the overload ladder.
	Brownout        int
	LimiterDegraded bool
}

// LengthLevel is how good the model of answers' lengths was, lately: see
// admission.LengthView.
type LengthLevel struct{ PairAccuracy, Covered, ReserveRatio float64 }

// ClassLevel is one class of requests, of those that are configured.
type ClassLevel struct {
	Name             string
	Running, Waiting int
}

type metrics struct {
	requests   *prometheus.CounterVec // route, class, outcome
	tokens     *prometheus.CounterVec // kind
	clientGone prometheus.Counter
	firstToken *prometheus.HistogramVec // route
	perToken   *prometheus.HistogramVec
	queue      *prometheus.HistogramVec
	total      *prometheus.HistogramVec
	refused    *prometheus.CounterVec   // class, reason
	demoted    *prometheus.CounterVec   // class
	classQueue *prometheus.HistogramVec // class
	waitError  prometheus.Histogram
}

var secondsBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

func newMetrics(reg *prometheus.Registry, levels func() Levels) *metrics {
	by := func(label, name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: secondsBuckets}, []string{label})
	}
	histogram := func(name, help string) *prometheus.HistogramVec { return by("route", name, help) }
	m := &metrics{
		requests:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_requests_total", Help: "Finished requests by outcome."}, []string{"route", "class", "outcome"}),
		tokens:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_tokens_total", Help: "Tokens of requests that ran and have finished: prompt, cached (a part of prompt), completion."}, []string{"kind"}),
		clientGone: prometheus.NewCounter(prometheus.CounterOpts{Name: "forebay_client_gone_total", Help: "Requests whose client left before the answer was whole."}),
		firstToken: histogram("forebay_time_to_first_token_seconds", "From arrival to the first content written, once for each request that got content."),
		perToken:   histogram("forebay_time_per_output_token_seconds", "Mean time between the tokens of a choice, once for each request with a second one."),
		queue:      histogram("forebay_queue_seconds", "From the end of preparing to admission."),
		total:      histogram("forebay_request_seconds", "From arrival to the end of the answer."),
		refused:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_admission_refused_total", Help: "Requests refused by admission or a budget, by reason."}, []string{"class", "reason"}),
		demoted:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "forebay_admission_demoted_total", Help: "Requests that ran in a lower class, by the class they came from."}, []string{"class"}),
		classQueue: by("class", "forebay_admission_wait_seconds", "From the end of preparing to admission, by class."),
		waitError:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "forebay_admission_prediction_error_seconds", Help: "How far the foretold wait for the first token was from the real one.", Buckets: secondsBuckets}),
	}
	reg.MustRegister(m.requests, m.tokens, m.clientGone, m.firstToken, m.perToken, m.queue, m.total, m.refused, m.demoted, m.classQueue, m.waitError, levelCollector{levels})
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
		m.classQueue.WithLabelValues(r.Class).Observe(seconds(r.Admitted - r.Prepared))
	}
	if r.WaitPredicted > 0 && r.FirstToken != 0 {
		m.waitError.Observe(math.Abs(seconds(r.FirstToken - r.Prepared - r.WaitPredicted)))
	}
	if r.Refused != "" {
		m.refused.WithLabelValues(r.Class, r.Refused).Inc()
	}
	if r.DemotedFrom != "" {
		m.demoted.WithLabelValues(r.DemotedFrom).Inc()
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
	descMargin    = desc("forebay_admission_step_margin", "How far predictions of engine steps are stretched: the 90th percentile of actual over predicted.")
	descPairs     = desc("forebay_length_pair_accuracy", "Of two answers, how often the one expected to be longer was.")
	descCovered   = desc("forebay_length_covered", "Share of answers within their predicted 90th percentile.")
	descReserved  = desc("forebay_length_reserve_ratio", "Predicted 90th percentile over actual length, summed over answers.")
	descRatioMid  = desc("forebay_engine_step_ratio_median", "Actual over predicted duration of the last thousand steps, median; 1 before the first.")
	descRatioHigh = desc("forebay_engine_step_ratio_high", "The same, 90th percentile.")
	descCost      = prometheus.NewDesc("forebay_engine_step_cost_nanoseconds", "The engine's model of its steps: a step (base), a prompt token (prefill), a prompt token times one before it (prefill_context), a decoding row (row), a token in its context (row_context).", []string{"term"}, nil)
	descBrownout  = desc("forebay_admission_brownout", "Step of the overload ladder; 0 is none.")
	descDegraded  = desc("forebay_budget_degraded", "1 while the shared store of budgets does not answer.")
	descClassRuns = prometheus.NewDesc("forebay_admission_running", "Requests admitted and not yet finished, by class.", []string{"class"}, nil)
	descClassWait = prometheus.NewDesc("forebay_admission_waiting", "Requests waiting for admission, by class.", []string{"class"}, nil)
	descPreempted = desc("forebay_engine_preempted_total", "Times a sequence lost its pages and was computed again.")
)

func desc(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }

// Describe implements prometheus.Collector.
func (levelCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRunning, descWaiting, descUp, descPagesUsed, descPagesFree, descPagesKept, descSequences, descSteps, descNonFinite, descPreempted, descMargin, descPairs, descCovered, descReserved, descRatioMid, descRatioHigh, descCost, descBrownout, descDegraded, descClassRuns, descClassWait} {
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
	gauge(descBrownout, l.Brownout)
	degraded := 0
	if l.LimiterDegraded {
		degraded = 1
	}
	gauge(descDegraded, degraded)
	number := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	number(descMargin, l.StepMargin)
	number(descPairs, l.Lengths.PairAccuracy)
	number(descCovered, l.Lengths.Covered)
	number(descReserved, l.Lengths.ReserveRatio)
	for _, c := range l.Classes {
		number(descClassRuns, float64(c.Running), c.Name)
		number(descClassWait, float64(c.Waiting), c.Name)
	}
	s := l.Engine
	if s == nil {
		s = &wire.State{Err: wire.Errorf(wire.Unavailable, "no engine yet")}
	}
	up := 1
	if s.Err != nil {
		up = 0
	}
	gauge(descUp, up)
	number(descRatioMid, s.RatioMedian)
	number(descRatioHigh, s.RatioHigh)
	for term, ns := range map[string]float64{"base": s.Cost.Base, "prefill": s.Cost.PrefillToken, "prefill_context": s.Cost.PrefillContext, "row": s.Cost.DecodeRow, "row_context": s.Cost.DecodeContext} {
		number(descCost, ns, term)
	}
	gauge(descPagesUsed, s.PagesUsed)
	gauge(descPagesFree, s.PagesFree)
	gauge(descPagesKept, s.PagesCached)
	gauge(descSequences, s.Running+s.Waiting+s.Paused)
	counter(descSteps, s.Step)
	counter(descNonFinite, s.NonFinite)
	counter(descPreempted, s.Preempted)
}
