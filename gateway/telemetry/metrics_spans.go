package telemetry

import "github.com/prometheus/client_golang/prometheus"

// SpanCounts count the spans that were handed to the exporter, since the start.
type SpanCounts struct {
	Exported, Failed, QueueFull, Stopped uint64
	AttributesDropped                    uint64
	Queued                               int
}

// CountSpans makes the metrics show the counts that read returns at each scrape.
func (r *Recorder) CountSpans(read func() SpanCounts) { r.metrics.spans.Store(&read) }

var (
	specSpansExported   = counter("forebay_spans_exported_total", "Spans that the collector took.")
	specSpansDropped    = counter("forebay_spans_dropped_total", "Spans that were lost, by why: queue_full (spans.queue_max), failed (the collector refused them or was away), stopped (too late for spans.flush_limit at the stop; the log has the last number).", "reason")
	specSpansQueued     = gauge("forebay_spans_queued", "Spans that wait to be sent.")
	specSpansAttributes = counter("forebay_spans_attributes_dropped_total", "Attributes left out of exported spans, since a span has at most 128.")
)

func collectSpans(ch chan<- prometheus.Metric, c SpanCounts) {
	ch <- specSpansExported.value(float64(c.Exported))
	ch <- specSpansDropped.value(float64(c.QueueFull), "queue_full")
	ch <- specSpansDropped.value(float64(c.Failed), "failed")
	ch <- specSpansDropped.value(float64(c.Stopped), "stopped")
	ch <- specSpansQueued.value(float64(c.Queued))
	ch <- specSpansAttributes.value(float64(c.AttributesDropped))
}
