package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CountRateLimit makes the metrics show the decisions that read returns at each scrape.
func (r *Recorder) CountRateLimit(read func() []ReasonCount) { r.metrics.rateLimit.Store(&read) }

var specRateLimit = counter("forebay_ratelimit_decisions_total", "Answers to Envoy's rate limit service, by result: ok, over_limit, shadow (it would have been over the limit), or no_limit.", "result")

// CountPicks makes the metrics show the picks of the endpoint picker that read returns
// at each scrape.
func (r *Recorder) CountPicks(read func() []ReasonCount) { r.metrics.picks.Store(&read) }

var specPicks = counter("forebay_picks_total", "Replicas picked for a proxy, by result: by what was known of the prompt, by having read it, by load alone (full: so too, since the bodies of other requests take up all room), or refused: shed (the replicas were busy), nobody (no replica took requests).", "result")

// ProxyService is a service that proxies ask.
type ProxyService int

// The services.
const (
	RateLimit ProxyService = iota
	Picker
)

var specProxyAnswers = distribution(gapBuckets, "forebay_proxy_answer_seconds", "Time from a question of a proxy, once it is there as a whole, to the answer, by service: rate_limit or picker.", "service")

// ProxyAnswered counts an answer to a proxy, and the time that it took.
func (r *Recorder) ProxyAnswered(service ProxyService, took time.Duration) {
	r.metrics.proxies[service].observe(took.Seconds(), 1)
}

// CountHandshakes makes the metrics show the failed handshakes that read returns at each scrape.
func (r *Recorder) CountHandshakes(read func() []ReasonCount) { r.metrics.handshakes.Store(&read) }

var specHandshakes = counter("forebay_tls_handshakes_failed_total", "Connections to the API, and of siblings, with which TLS could not begin, by why: plain_http, not_tls, version, cipher, protocol, no_client_certificate, client_certificate_expired, client_certificate_unknown (its authority), client_certificate_invalid, server_certificate_refused (by the client), timed_out, other. The log has the address and the error.", "reason")

// collectReasons shows what is counted elsewhere by reason alone.
func (m *metrics) collectReasons(out chan<- prometheus.Metric) {
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
	show(m.handshakes.Load(), specHandshakes)
	if m.rateLimit.Load() != nil {
		out <- m.proxies[RateLimit].metric(specProxyAnswers.desc, nil, "rate_limit")
	}
	if m.picks.Load() != nil {
		out <- m.proxies[Picker].metric(specProxyAnswers.desc, nil, "picker")
	}
}
