package telemetry

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// apart gathers families that OpenMetrics tells apart. There a counter's family has
// its name without _total, so another family of that name would come twice, and a
// strict parser refuses the page. The counter stays. Of Go's own metrics this leaves
// out go_memstats_alloc_bytes; go_memstats_heap_alloc_bytes has the same value.
type apart struct{ prometheus.Gatherer }

// Gather implements prometheus.Gatherer.
func (a apart) Gather() ([]*dto.MetricFamily, error) {
	all, err := a.Gatherer.Gather()
	counters := map[string]bool{}
	for _, f := range all {
		if name, ok := strings.CutSuffix(f.GetName(), "_total"); ok && f.GetType() == dto.MetricType_COUNTER {
			counters[name] = true
		}
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return counters[f.GetName()] }), err
}
