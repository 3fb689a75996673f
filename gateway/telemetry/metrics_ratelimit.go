package telemetry

import "github.com/prometheus/client_golang/prometheus"

// CountRateLimit makes the metrics show the decisions that read returns at each scrape.
func (r *Recorder) CountRateLimit(read func() []ReasonCount) { r.metrics.rateLimit.Store(&read) }

var specRateLimit = counter("forebay_ratelimit_decisions_total", "Answers to Envoy's rate limit service, by result: ok, over_limit, shadow (it would have been over the limit), or no_limit.", "result")

// CountPicks makes the metrics show the picks of the endpoint picker that read returns
// at each scrape.
func (r *Recorder) CountPicks(read func() []ReasonCount) { r.metrics.picks.Store(&read) }

var specPicks = counter("forebay_picks_total", "Replicas picked for a proxy, by result: by what was known of the prompt, by having read it, by load alone (full: so too, since the bodies of other requests take up all room), or refused: shed (the replicas were busy), nobody (no replica took requests).", "result")

// collectProxies shows what proxies were told.
func (m *metrics) collectProxies(out chan<- prometheus.Metric) {
	show := func(read *func() []ReasonCount, spec *spec) {
		if read == nil {
			return
		}
		for _, c := range (*read)() {
			out <- spec.value(float64(c.Count), c.Reason)
		}
	}
	show(m.rateLimit.Load(), specRateLimit)
	show(m.picks.Load(), specPicks)
}
