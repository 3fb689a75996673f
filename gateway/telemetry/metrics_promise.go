package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Metrics of what admission promised, and of how true its predictions were.
var (
	specPromises = counter("forebay_promises_total", "Finished requests that were admitted with a goal for the first token, by what became of it: kept; broken (later than the goal, or none when the goal had passed); revoked (refused while it waited, or demoted to a class without a goal); open (it ended before its first token and within its goal, as when its client left). The sum over the results is what was promised.", "class", "result")
	specRefused  = counter("forebay_admission_refused_total", "Requests refused by admission or a budget, by reason, and when: on arrival, or later, after admission had taken the request in.", "class", "reason", "when")
	specRefusal  = distribution(refusalBuckets, "forebay_refusal_seconds", "From a request's arrival at the gateway to the end of its refusal by admission or a budget, by outcome, and when: on arrival, or later.", "class", "outcome", "when")
	specRatio    = distribution(ratioBuckets, "forebay_first_token_prediction_ratio", "Actual time to the first token over the one that was predicted on arrival: above 1 it came later. Requests without a first token or a prediction are left out.", "class")
	specMistake  = distribution(secondsBuckets, "forebay_first_token_prediction_error_seconds", "Difference between the actual and the predicted time to the first token, of the requests that came later than predicted (late) and of the others (early). The sum of late minus that of early, over both counts, is the bias.", "class", "direction")
)

// Values of the label when.
const (
	whenArrival = "arrival"
	whenLater   = "later"
)

// promises are the metrics of this file.
type promises struct {
	results, refused        *prometheus.CounterVec
	refusal, ratio, mistake *histograms
}

// observe counts what r was promised and told.
func (m *promises) observe(r *Record) {
	if p := r.Promise(r.Finished); p != PromiseNone {
		m.show(r.Class)
		m.results.WithLabelValues(r.Class, p.String()).Inc()
	}
	if r.Refused != "" {
		when := whenArrival
		if r.Accepted != 0 {
			when = whenLater
		}
		m.refused.WithLabelValues(r.Class, r.Refused, when).Inc()
		m.refusal.of(labels{r.Class, r.Outcome.String(), when}).note(seconds(r.Finished-r.Arrived), r)
	}
	if ratio := r.PredictionRatio(); ratio > 0 {
		m.ratio.of(labels{r.Class}).note(ratio, r)
		late, early := m.mistake.of(labels{r.Class, "late"}), m.mistake.of(labels{r.Class, "early"})
		if mistake := seconds(r.FirstToken - r.Arrived - r.WaitPredicted); mistake > 0 {
			late.note(mistake, r)
		} else {
			early.note(-mistake, r)
		}
	}
}

// show makes all results of a class appear on the page: Prometheus sees no rise in
// a series that begins with 1, and a missing one has no ratio.
func (m *promises) show(class string) {
	for p := PromiseOpen; p < promiseCount; p++ {
		m.results.WithLabelValues(class, p.String())
	}
}
