package telemetry

import "github.com/prometheus/client_golang/prometheus"

// CountRateLimit makes the metrics show the decisions that read returns at each scrape.
func (r *Recorder) CountRateLimit(read func() []ReasonCount) { r.metrics.rateLimit.Store(&read) }

var specRateLimit = counter("forebay_ratelimit_decisions_total", "Answers to Envoy's rate limit service, by result: ok, over_limit, shadow (it would have been over the limit), or no_limit.", "result")

func collectRateLimit(counts []ReasonCount, out chan<- prometheus.Metric) {
	for _, c := range counts {
		out <- specRateLimit.value(float64(c.Count), c.Reason)
	}
}
