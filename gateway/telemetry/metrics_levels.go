package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay-io/forebay/internal/wire"
)

// Levels are the gauges at this instant, read from the state that owns them.
type Levels struct {
	RequestsRunning int
	RequestsWaiting int
	Engine          *wire.State // nil before the first one
	Classes         []ClassLevel
	Groups          []GroupLevel // none where there is one group
	Lengths         LengthLevel
	// Brownout is the step of the overload ladder, 0 for none.
	Brownout        int
	LimiterDegraded bool
	// LimiterDry counts what limits with dry_run would have refused, by rule.
	LimiterDry []RuleCount
}

// RuleCount is a number for one rule of the budgets.
type RuleCount struct {
	Rule  string
	Count int64
}

// LengthLevel says how well the lengths of answers were predicted lately: see
// admission.LengthView.
type LengthLevel struct{ PairAccuracy, Covered, ReserveRatio float64 }

// ClassLevel is one configured class of requests.
type ClassLevel struct {
	Name             string
	Running, Waiting int
	Margin           float64 // the factor on its predicted waits
}

// GroupLevel is the requests of one group of engines.
type GroupLevel struct {
	Name             string
	Running, Waiting int
}

// CaptureCounts count the requests that there was a reason to keep, since the
// start. Reasons are from closed lists.
type CaptureCounts struct {
	Kept, Dropped []ReasonCount
	Brief         uint64 // the part of Kept without steps
	DiskBytes     int64
	DiskErrors    uint64 // writes that failed
}

// ReasonCount is how often something happened for a reason.
type ReasonCount struct {
	Reason string
	Count  uint64
}

// CountCaptures makes the metrics show the counts that read returns at each scrape.
func (r *Recorder) CountCaptures(read func() CaptureCounts) { r.metrics.capture.Store(&read) }

// ResolveExemplars makes histograms point at kept requests: kept tells, at each
// scrape, whether the request with that id is still kept. Without it there are no
// exemplars.
func (r *Recorder) ResolveExemplars(kept func(id string) bool) { r.metrics.kept.Store(&kept) }

// Metrics that are computed at each scrape.
var (
	specRunning     = gauge("forebay_requests_running", "Requests admitted and not yet finished.")
	specWaiting     = gauge("forebay_requests_waiting", "Requests waiting for admission.")
	specClassRuns   = gauge("forebay_admission_running", "Requests admitted and not yet finished, by class.", "class")
	specClassWaits  = gauge("forebay_admission_waiting", "Requests waiting for admission, by class.", "class")
	specBrownout    = gauge("forebay_admission_brownout", "Step of the overload ladder; 0 is none.")
	specMargin      = gauge("forebay_admission_margin", "Factor on the predicted waits of a class, when they are compared with its goal; of less urgent classes it grows with what more urgent work takes. A broken or revoked promise raises it, a kept one lowers it a little.", "class")
	specDegraded    = gauge("forebay_budget_degraded", "1 while the shared store of budgets does not answer.")
	specDry         = counter("forebay_budget_dry_run_refused_total", "Requests that a limit with dry_run would have refused, by rule.", "rule")
	specPairs       = gauge("forebay_length_pair_accuracy", "Share of pairs of answers in which the one predicted to be longer was longer.")
	specCovered     = gauge("forebay_length_covered", "Share of answers within their predicted 90th percentile.")
	specReserved    = gauge("forebay_length_reserve_ratio", "Predicted 90th percentile over actual length, summed over answers.")
	specUp          = gauge("forebay_engine_up", "1 when the engine reports no error.")
	specSilent      = gauge("forebay_engine_silent_seconds", "Time since the engine last told its state. It tells it after every step, and twice a second without one.")
	specSequences   = gauge("forebay_engine_sequences", "Sequences in the engine: running, waiting and paused.")
	specPrefillWait = gauge("forebay_engine_prefill_waiting_tokens", "Prompt tokens in the engine that wait to be computed, by lane.", "lane")
	specRatioMid    = gauge("forebay_engine_step_ratio_median", "Actual over predicted duration of the last thousand steps, median; 1 before the first.")
	specRatioHigh   = gauge("forebay_engine_step_ratio_high", "The same, 90th percentile.")
	specCost        = gauge("forebay_engine_step_cost_seconds", "The engine's model of its steps: a step (base), a prompt token (prefill), a prompt token times one before it (prefill_context), a decoding row (row), a token in its context (row_context).", "term")
	specPages       = gauge("forebay_kv_pages", "Pages of the pool that holds keys and values.")
	specPagesUsed   = gauge("forebay_kv_pages_used", "Pages referenced by a sequence or a pin.")
	specPagesPinned = gauge("forebay_kv_pages_pinned", "Pages that pinned prompts hold, of those used.")
	specPagesFree   = gauge("forebay_kv_pages_free", "Pages that hold nothing.")
	specPagesKept   = gauge("forebay_kv_pages_cached", "Unreferenced pages kept for reuse.")
	specKVBytes     = gauge("forebay_kv_bytes", "Memory of the pages by state: used, cached, free.", "state")
	specStateBytes  = gauge("forebay_state_bytes", "Memory of the states of recurrent layers by state: used (by sequences), cached (copies at the ends of blocks), pinned (those that pins hold), free.", "state")
	specKVUsage     = gauge("forebay_kv_usage_ratio", "Pages used over all pages, from 0 to 1.")
	specDiskBlocks  = gauge("forebay_kv_disk_blocks", "Blocks of keys and values on disk, or for a GPU in this machine's memory.")
	specDiskBytes   = gauge("forebay_kv_disk_bytes", "Bytes that these take there.")
	specEngineInfo  = gauge("forebay_engine_info", "1, with what the engine runs.", "model", "architecture", "quantization", "kernels")
	specBuild       = gauge("forebay_build_info", "1, with the version of the gateway and of Go.", "version", "revision", "go_version")
	specKept        = counter("forebay_capture_kept_total", "Requests that were kept, by the most important reason.", "reason")
	specDropped     = counter("forebay_capture_dropped_total", "Requests that there was a reason to keep but that were dropped, by why.", "reason")
	specBrief       = counter("forebay_capture_brief_total", "Kept requests without their steps.")
	specDisk        = gauge("forebay_capture_disk_bytes", "Bytes of kept requests on disk.")
	specDiskErrors  = counter("forebay_capture_disk_errors_total", "Writes of kept requests that failed.")
)

// levelCollector computes the metrics that have no collector of their own.
type levelCollector struct{ m *metrics }

// Describe implements prometheus.Collector.
func (c levelCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range catalogue {
		if !c.m.own[s] {
			ch <- s.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c levelCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.m.levels()
	if l.Engine != nil {
		c.m.engine.heard(l.Engine) // in case nobody calls Heard
	}
	ch <- specRunning.value(float64(l.RequestsRunning))
	ch <- specWaiting.value(float64(l.RequestsWaiting))
	for _, k := range l.Classes {
		ch <- specClassRuns.value(float64(k.Running), k.Name)
		ch <- specClassWaits.value(float64(k.Waiting), k.Name)
		ch <- specMargin.value(k.Margin, k.Name)
		c.m.showGoal(k.Name, goalServed)
		c.m.promises.show(k.Name)
	}
	for _, k := range l.Groups {
		ch <- specGroupRequests.value(float64(k.Running), k.Name, "running")
		ch <- specGroupRequests.value(float64(k.Waiting), k.Name, "waiting")
	}
	ch <- specBrownout.value(float64(l.Brownout))
	ch <- specDegraded.value(oneIf(l.LimiterDegraded))
	for _, n := range l.LimiterDry {
		ch <- specDry.value(float64(n.Count), n.Rule)
	}
	ch <- specPairs.value(l.Lengths.PairAccuracy)
	ch <- specCovered.value(l.Lengths.Covered)
	ch <- specReserved.value(l.Lengths.ReserveRatio)
	ch <- specBuild.value(1, c.m.build[:]...)
	collectState(ch, l.Engine)
	c.m.engine.collect(ch)
	c.m.economy.collect(ch)
	if read := c.m.identity.Load(); read != nil {
		counts := (*read)()
		collectIdentity(&counts, ch)
	}
	c.m.collectReasons(ch)
	if read := c.m.policy.Load(); read != nil {
		counts := (*read)()
		collectPolicy(&counts, ch)
	}
	if read := c.m.siblings.Load(); read != nil {
		counts := (*read)()
		collectSiblings(&counts, ch)
	}
	if read := c.m.capture.Load(); read != nil {
		collectCaptures(ch, (*read)())
	}
	if read := c.m.spans.Load(); read != nil {
		collectSpans(ch, (*read)())
	}
	if read := c.m.lines.Load(); read != nil {
		collectUsage(ch, (*read)())
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collectState shows the engine's state, all zeros without an engine.
func collectState(ch chan<- prometheus.Metric, s *wire.State) {
	up := s != nil && s.Err == nil
	if s == nil {
		s = &wire.State{}
	}
	ch <- specUp.value(oneIf(up))
	silent := 0.0
	if up {
		silent = max(0, time.Duration(wire.Monotonic()-s.At).Seconds())
	}
	ch <- specSilent.value(silent)
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
	ch <- specPagesPinned.value(float64(s.PagesPinned))
	ch <- specPagesFree.value(float64(s.PagesFree))
	ch <- specPagesKept.value(float64(s.PagesCached))
	for state, pages := range map[string]int{"used": s.PagesUsed, "cached": s.PagesCached, "free": s.PagesFree} {
		ch <- specKVBytes.value(float64(pages)*float64(s.Model.PageBytes), state)
	}
	for state, n := range map[string]int{"used": s.StatesUsed, "cached": s.StatesCached - s.StatesPinned, "pinned": s.StatesPinned, "free": s.StatesFree} {
		ch <- specStateBytes.value(float64(n)*float64(s.Model.StateBytes), state)
	}
	ch <- specKVUsage.value(usage(s))
	ch <- specDiskBlocks.value(float64(s.Disk.Blocks))
	ch <- specDiskBytes.value(float64(s.Disk.Bytes))
	collectGPU(ch, &s.GPU)
	collectUpstreams(ch, s)
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
