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

// CaptureCounts are what became of the requests that might have been kept,
// since the start. Reasons are from closed lists.
type CaptureCounts struct {
	Kept, Dropped []ReasonCount
	Brief         uint64 // of those kept, without their steps
	DiskBytes     int64
	DiskErrors    uint64 // writes that failed
}

// ReasonCount is how often something happened for a reason.
type ReasonCount struct {
	Reason string
	Count  uint64
}

// CountCaptures makes the metrics show what read says at each scrape.
func (r *Recorder) CountCaptures(read func() CaptureCounts) { r.metrics.capture.Store(&read) }

// ResolveExemplars makes histograms point at kept requests: there tells, at
// each scrape, whether a request of that id can still be looked at. Without it
// there are no exemplars.
func (r *Recorder) ResolveExemplars(there func(id string) bool) { r.metrics.there.Store(&there) }

// Metrics that are read when they are scraped.
var (
	specRunning     = gauge("forebay_requests_running", "Requests admitted and not yet finished.")
	specWaiting     = gauge("forebay_requests_waiting", "Requests waiting for admission.")
	specClassRuns   = gauge("forebay_admission_running", "Requests admitted and not yet finished, by class.", "class")
	specClassWaits  = gauge("forebay_admission_waiting", "Requests waiting for admission, by class.", "class")
	specBrownout    = gauge("forebay_admission_brownout", "Step of the overload ladder; 0 is none.")
	specMargin      = gauge("forebay_admission_step_margin", "How far predictions of engine steps are stretched: the 90th percentile of actual over predicted.")
	specDegraded    = gauge("forebay_budget_degraded", "1 while the shared store of budgets does not answer.")
	specPairs       = gauge("forebay_length_pair_accuracy", "Of two answers, how often the one expected to be longer was.")
	specCovered     = gauge("forebay_length_covered", "Share of answers within their predicted 90th percentile.")
	specReserved    = gauge("forebay_length_reserve_ratio", "Predicted 90th percentile over actual length, summed over answers.")
	specUp          = gauge("forebay_engine_up", "1 when the engine reports no error.")
	specSequences   = gauge("forebay_engine_sequences", "Sequences in the engine: running, waiting and paused.")
	specPrefillWait = gauge("forebay_engine_prefill_waiting_tokens", "Prompt tokens in the engine that wait to be computed, by lane.", "lane")
	specRatioMid    = gauge("forebay_engine_step_ratio_median", "Actual over predicted duration of the last thousand steps, median; 1 before the first.")
	specRatioHigh   = gauge("forebay_engine_step_ratio_high", "The same, 90th percentile.")
	specCost        = gauge("forebay_engine_step_cost_seconds", "The engine's model of its steps: a step (base), a prompt token (prefill), a prompt token times one before it (prefill_context), a decoding row (row), a token in its context (row_context).", "term")
	specPages       = gauge("forebay_kv_pages", "Pages of the pool that holds keys and values.")
	specPagesUsed   = gauge("forebay_kv_pages_used", "Pages referenced by a sequence.")
	specPagesFree   = gauge("forebay_kv_pages_free", "Pages that hold nothing.")
	specPagesKept   = gauge("forebay_kv_pages_cached", "Unreferenced pages kept for reuse.")
	specKVBytes     = gauge("forebay_kv_bytes", "Memory of the pages, by what they are: used, cached, free.", "state")
	specKVUsage     = gauge("forebay_kv_usage_ratio", "Pages used over all pages, from 0 to 1.")
	specEngineInfo  = gauge("forebay_engine_info", "1, with what the engine runs.", "model", "architecture", "quantization", "kernels")
	specBuild       = gauge("forebay_build_info", "1, with the version of the gateway and of Go.", "version", "revision", "go_version")
	specKept        = counter("forebay_capture_kept_total", "Requests whose trace was kept, by the weightiest reason.", "reason")
	specDropped     = counter("forebay_capture_dropped_total", "Requests whose trace would have been kept, by what stood against it.", "reason")
	specBrief       = counter("forebay_capture_brief_total", "Of those, requests that were kept without their steps.")
	specDisk        = gauge("forebay_capture_disk_bytes", "Kept requests on disk.")
	specDiskErrors  = counter("forebay_capture_disk_errors_total", "Writes of kept requests that failed.")
)

// levelCollector shows what is read at each scrape.
type levelCollector struct{ m *metrics }

// Describe implements prometheus.Collector: all that is read or computed then.
func (levelCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range []*spec{
		specRunning, specWaiting, specClassRuns, specClassWaits, specBrownout, specMargin, specDegraded, specPairs, specCovered, specReserved,
		specUp, specSequences, specPrefillWait, specRatioMid, specRatioHigh, specCost, specPages, specPagesUsed, specPagesFree, specPagesKept,
		specKVBytes, specKVUsage, specEngineInfo, specBuild, specKept, specDropped, specBrief, specDisk, specDiskErrors,
	} {
		ch <- s.desc
	}
	describeEngine(ch)
	describeEconomy(ch)
}

// Collect implements prometheus.Collector.
func (c levelCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.m.levels()
	if l.Engine != nil {
		c.m.engine.heard(l.Engine) // steps of an engine whose states nobody hands on
	}
	ch <- specRunning.value(float64(l.RequestsRunning))
	ch <- specWaiting.value(float64(l.RequestsWaiting))
	for _, k := range l.Classes {
		ch <- specClassRuns.value(float64(k.Running), k.Name)
		ch <- specClassWaits.value(float64(k.Waiting), k.Name)
		c.m.showGoal(k.Name, goalServed)
	}
	ch <- specBrownout.value(float64(l.Brownout))
	ch <- specMargin.value(l.StepMargin)
	ch <- specDegraded.value(oneIf(l.LimiterDegraded))
	ch <- specPairs.value(l.Lengths.PairAccuracy)
	ch <- specCovered.value(l.Lengths.Covered)
	ch <- specReserved.value(l.Lengths.ReserveRatio)
	ch <- specBuild.value(1, c.m.build[:]...)
	collectState(ch, l.Engine)
	c.m.engine.collect(ch)
	c.m.economy.collect(ch)
	if read := c.m.capture.Load(); read != nil {
		collectCaptures(ch, (*read)())
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collectState shows the engine as it is now, which is all zeros without one.
func collectState(ch chan<- prometheus.Metric, s *wire.State) {
	up := s != nil && s.Err == nil
	if s == nil {
		s = &wire.State{}
	}
	ch <- specUp.value(oneIf(up))
	ch <- specSequences.value(float64(s.Running + s.Waiting + s.Paused))
	ch <- specPrefillWait.value(float64(s.ShortPrefill), "short")
	ch <- specPrefillWait.value(float64(s.LongPrefill), "long")
	ch <- specRatioMid.value(s.RatioMedian)
	ch <- specRatioHigh.value(s.RatioHigh)
	for term, ns := range map[string]float64{"base": s.Cost.Base, "prefill": s.Cost.PrefillToken, "prefill_context": s.Cost.PrefillContext, "row": s.Cost.DecodeRow, "row_context": s.Cost.DecodeContext} {
		ch <- specCost.value(ns/1e9, term)
	}
	ch <- specPages.value(float64(s.PagesTotal))
	ch <- specPagesUsed.value(float64(s.PagesUsed))
	ch <- specPagesFree.value(float64(s.PagesFree))
	ch <- specPagesKept.value(float64(s.PagesCached))
	for state, pages := range map[string]int{"used": s.PagesUsed, "cached": s.PagesCached, "free": s.PagesFree} {
		ch <- specKVBytes.value(float64(pages)*float64(s.Model.PageBytes), state)
	}
	ch <- specKVUsage.value(usage(s))
	if m := &s.Model; up {
		ch <- specEngineInfo.value(1, m.ID, m.Architecture, m.Quantisation, m.Kernels)
	}
}

func usage(s *wire.State) float64 {
	if s.PagesTotal == 0 {
		return 0
	}
	return float64(s.PagesUsed) / float64(s.PagesTotal)
}

func collectCaptures(ch chan<- prometheus.Metric, c CaptureCounts) {
	for _, k := range c.Kept {
		ch <- specKept.value(float64(k.Count), k.Reason)
	}
	for _, d := range c.Dropped {
		ch <- specDropped.value(float64(d.Count), d.Reason)
	}
	ch <- specBrief.value(float64(c.Brief))
	ch <- specDisk.value(float64(c.DiskBytes))
	ch <- specDiskErrors.value(float64(c.DiskErrors))
}
