package telemetry

import (
	"encoding/hex"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// histogram counts values in buckets. observe is called for every token: it takes no
// lock and allocates nothing.
type histogram struct {
	bounds    []float64
	counts    []atomic.Uint64 // one for each bound, and one above all bounds
	sum       atomic.Uint64   // bits of a float64
	exemplars []atomic.Pointer[exemplar]
}

// exemplar points from a bucket at one of the requests in it.
type exemplar struct {
	value float64
	at    time.Time
	id    string // the request's
	trace [16]byte
}

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1), exemplars: make([]atomic.Pointer[exemplar], len(bounds)+1)}
}

func (h *histogram) bucket(v float64) int {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	return i
}

// observe counts n observations of v.
func (h *histogram) observe(v float64, n uint64) {
	h.counts[h.bucket(v)].Add(n)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v*float64(n))) {
			return
		}
	}
}

// note observes v once, and makes r the exemplar of its bucket, if r was kept.
func (h *histogram) note(v float64, r *Record) {
	h.observe(v, 1)
	if r.Kept {
		h.exemplars[h.bucket(v)].Store(&exemplar{value: v, at: time.Now(), id: r.ID, trace: r.Trace.TraceID})
	}
}

// addTo adds h to sums, which has the same buckets.
func (h *histogram) addTo(sums *histogram) {
	for i := range h.counts {
		sums.counts[i].Add(h.counts[i].Load())
	}
	sums.sum.Store(math.Float64bits(math.Float64frombits(sums.sum.Load()) + math.Float64frombits(h.sum.Load())))
}

// metric is h as a metric, with exemplars of requests that are still kept; a nil
// kept leaves them out.
func (h *histogram) metric(desc *prometheus.Desc, kept func(id string) bool, labels ...string) prometheus.Metric {
	buckets, count := make(map[float64]uint64, len(h.bounds)), uint64(0)
	for i := range h.counts {
		if count += h.counts[i].Load(); i < len(h.bounds) {
			buckets[h.bounds[i]] = count
		}
	}
	m := prometheus.MustNewConstHistogram(desc, count, math.Float64frombits(h.sum.Load()), buckets, labels...)
	var examples []prometheus.Exemplar
	for i := range h.exemplars {
		if e := h.exemplars[i].Load(); e != nil && kept != nil && kept(e.id) {
			examples = append(examples, prometheus.Exemplar{Value: e.value, Timestamp: e.at, Labels: prometheus.Labels{"trace_id": hex.EncodeToString(e.trace[:]), "request_id": e.id}})
		}
	}
	if len(examples) == 0 {
		return m
	}
	return prometheus.MustNewMetricWithExemplars(m, examples...)
}

// labels are the values of a spec's labels, in order; the others are "".
type labels [5]string

// histograms are the series of one spec, one for each set of label values. It is a
// prometheus.Collector.
type histograms struct {
	*spec
	kept   *atomic.Pointer[func(id string) bool] // which requests exemplars may name
	mu     sync.RWMutex
	series map[labels]*histogram
}

// seriesMax bounds the series of a metric. Later ones share a series whose labels
// all are "other".
const seriesMax = 256

const otherLabel = "other"

func (f *histograms) of(values labels) *histogram {
	f.mu.RLock()
	h := f.series[values]
	f.mu.RUnlock()
	if h != nil {
		return h
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.series[values]; h != nil {
		return h
	}
	if len(f.series) >= seriesMax {
		values = labels{}
		for i := range f.labels {
			values[i] = otherLabel
		}
		if h := f.series[values]; h != nil {
			return h
		}
	}
	h = newHistogram(f.buckets)
	f.series[values] = h
	return h
}

// total is the sum of all series.
func (f *histograms) total() *histogram {
	sums := newHistogram(f.buckets)
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, h := range f.series {
		h.addTo(sums)
	}
	return sums
}

// Describe implements prometheus.Collector.
func (f *histograms) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

// Collect implements prometheus.Collector.
func (f *histograms) Collect(ch chan<- prometheus.Metric) {
	var kept func(string) bool
	if p := f.kept.Load(); p != nil {
		kept = *p
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for values, h := range f.series {
		ch <- h.metric(f.desc, kept, values[:len(f.labels)]...)
	}
}

// Intervals counts the times between the tokens of a class's choices.
type Intervals struct{ h *histogram }

// Observe counts tokens that came together, elapsed nanoseconds after the token
// before them. Each gets an equal share of that time.
func (i Intervals) Observe(elapsed int64, tokens int) {
	if i.h == nil || tokens < 1 || elapsed < 0 {
		return
	}
	i.h.observe(float64(elapsed)/1e9/float64(tokens), uint64(tokens))
}

// Intervals returns the Intervals of a configured class.
func (r *Recorder) Intervals(class string) Intervals {
	return Intervals{r.metrics.interval.of(labels{class})}
}
