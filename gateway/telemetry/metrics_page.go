package telemetry

import (
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MetricsPage serves the metrics as Prometheus text, or as OpenMetrics with
// exemplars if the scraper asks for that. With ?compat=vllm it serves only the
// metrics that vLLM has too, under vLLM's names.
func (r *Recorder) MetricsPage() http.Handler {
	options := promhttp.HandlerOpts{EnableOpenMetrics: true}
	own := promhttp.HandlerFor(apart{r.registry}, options)
	as := prometheus.NewRegistry()
	as.MustRegister(vllmCollector{r.metrics})
	compat := promhttp.HandlerFor(apart{as}, options)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Query().Get("compat") {
		case "":
			own.ServeHTTP(w, q)
		case "vllm":
			compat.ServeHTTP(w, q)
		default:
			http.Error(w, "compat may be vllm; leave it out for Forebay's own names", http.StatusBadRequest)
		}
	})
}

// Version sets the version that forebay_build_info shows, before the first scrape.
func (r *Recorder) Version(version string) { r.metrics.build[0] = version }

// buildLabels are version, revision and Go's version, as far as the binary has them.
func buildLabels() (labels [3]string) {
	labels[2] = runtime.Version()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return labels
	}
	labels[0] = info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			labels[1] = s.Value
		}
	}
	return labels
}
