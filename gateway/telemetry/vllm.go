package telemetry

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// This file shows our metrics under vLLM's names, for dashboards, autoscalers and
// endpoint pickers that know those. Numbers and buckets are those of our own page.

// vllmLabels are on every metric. There is one engine, and its number is 0.
var vllmLabels = []string{"model_name", "engine"}

const vllmEngine = "0"

// vllmSpec is a metric of the page, and the name of ours that it shows.
type vllmSpec struct {
	*spec
	of string
}

var vllmCatalogue []vllmSpec

// vllm defines a metric of vLLM's page alone.
func vllm(kind, name, of string, more ...string) *spec {
	labels := append(append([]string{}, vllmLabels...), more...)
	s := &spec{name: "vllm:" + name, kind: kind, help: "As " + of + ".", labels: labels, desc: prometheus.NewDesc("vllm:"+name, "As "+of+".", labels, nil)}
	vllmCatalogue = append(vllmCatalogue, vllmSpec{s, of})
	return s
}

var (
	vllmRunning    = vllm(gaugeKind, "num_requests_running", "forebay_requests_running")
	vllmWaiting    = vllm(gaugeKind, "num_requests_waiting", "forebay_requests_waiting")
	vllmUsage      = vllm(gaugeKind, "kv_cache_usage_perc", "forebay_kv_usage_ratio")
	vllmOldUsage   = vllm(gaugeKind, "gpu_cache_usage_perc", "forebay_kv_usage_ratio")
	vllmCacheInfo  = vllm(gaugeKind, "cache_config_info", "the page pool: block_size in tokens, num_gpu_blocks is pages", "block_size", "num_gpu_blocks")
	vllmLora       = vllm(gaugeKind, "lora_requests_info", "no adapters, always", "max_lora", "running_lora_adapters", "waiting_lora_adapters")
	vllmQueries    = vllm(counterKind, "prefix_cache_queries_total", "forebay_prefix_queries_total")
	vllmHits       = vllm(counterKind, "prefix_cache_hits_total", "forebay_prefix_hits_total")
	vllmPrompt     = vllm(counterKind, "prompt_tokens_total", `forebay_engine_tokens_total{kind="prefill"} and cached`)
	vllmGeneration = vllm(counterKind, "generation_tokens_total", `forebay_engine_tokens_total{kind="decode"}`)
	vllmPreempted  = vllm(counterKind, "num_preemptions_total", "forebay_engine_preempted_total")
	vllmSuccess    = vllm(counterKind, "request_success_total", "the count of gen_ai_server_request_duration_seconds; stop holds length too, abort is client_gone, write_stall and deadline_exceeded, error the rest", "finished_reason")

	vllmFirstToken = vllm(histogramKind, "time_to_first_token_seconds", "gen_ai_server_time_to_first_token_seconds")
	vllmInterval   = vllm(histogramKind, "inter_token_latency_seconds", "forebay_token_interval_seconds")
	vllmPerToken   = vllm(histogramKind, "request_time_per_output_token_seconds", "gen_ai_server_time_per_output_token_seconds")
	vllmOldToken   = vllm(histogramKind, "time_per_output_token_seconds", "forebay_token_interval_seconds")
	vllmEndToEnd   = vllm(histogramKind, "e2e_request_latency_seconds", "gen_ai_server_request_duration_seconds of requests that were answered")
	vllmQueue      = vllm(histogramKind, "request_queue_time_seconds", "forebay_admission_wait_seconds")
	vllmPrefill    = vllm(histogramKind, "request_prefill_time_seconds", "forebay_request_prefill_seconds")
	vllmDecode     = vllm(histogramKind, "request_decode_time_seconds", "forebay_request_decode_seconds")
	vllmInPrompt   = vllm(histogramKind, "request_prompt_tokens", "forebay_request_prompt_tokens")
	vllmOutTokens  = vllm(histogramKind, "request_generation_tokens", "forebay_request_completion_tokens")
	vllmStepTokens = vllm(histogramKind, "iteration_tokens_total", "forebay_engine_step_tokens")
)

// vllmCollector shows the page. It is empty before the first engine, because there
// is no model to name.
type vllmCollector struct{ m *metrics }

// Describe implements prometheus.Collector.
func (vllmCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range vllmCatalogue {
		ch <- s.desc
	}
}

// Collect implements prometheus.Collector.
func (c vllmCollector) Collect(ch chan<- prometheus.Metric) {
	l := c.m.levels()
	if l.Engine == nil {
		return
	}
	c.m.engine.heard(l.Engine)
	e := c.m.engine
	e.mu.Lock()
	model, sums := e.model, e.sums
	e.mu.Unlock()
	if model.ID == "" {
		return
	}
	show := func(s *spec, v float64, labels ...string) {
		ch <- s.value(v, append([]string{model.ID, vllmEngine}, labels...)...)
	}
	show(vllmRunning, float64(l.RequestsRunning))
	show(vllmWaiting, float64(l.RequestsWaiting))
	show(vllmUsage, usage(l.Engine))
	show(vllmOldUsage, usage(l.Engine))
	show(vllmCacheInfo, 1, strconv.Itoa(model.PageTokens), strconv.Itoa(l.Engine.PagesTotal))
	show(vllmLora, 1, "0", "", "")
	show(vllmQueries, float64(sums[totalPrefill]+sums[totalCached]))
	show(vllmHits, float64(sums[totalCached]))
	show(vllmPrompt, float64(sums[totalPrefill]+sums[totalCached]))
	show(vllmGeneration, float64(sums[totalDecode]))
	show(vllmPreempted, float64(sums[totalPreempted]))
	ended, answered := c.m.durations()
	for _, reason := range []string{"stop", "abort", "error"} {
		show(vllmSuccess, float64(ended[reason]), reason)
	}
	tokens := newHistogram(tokensBuckets)
	for _, h := range e.tokens {
		h.addTo(tokens)
	}
	for _, h := range []struct {
		spec *spec
		of   *histogram
	}{
		{vllmFirstToken, c.m.firstToken.total()}, {vllmInterval, c.m.interval.total()}, {vllmPerToken, c.m.perToken.total()}, {vllmOldToken, c.m.interval.total()},
		{vllmEndToEnd, answered}, {vllmQueue, c.m.queue.total()}, {vllmPrefill, c.m.prefill.total()}, {vllmDecode, c.m.decode.total()},
		{vllmInPrompt, c.m.prompt.total()}, {vllmOutTokens, c.m.completion.total()}, {vllmStepTokens, tokens},
	} {
		ch <- h.of.metric(h.spec.desc, nil, model.ID, vllmEngine)
	}
}

// errorTypeLabel is the place of error_type among the labels of specDuration.
const errorTypeLabel = 3

// durations returns how many requests ended, by vLLM's reason, and the durations of
// the answered ones.
func (m *metrics) durations() (ended map[string]uint64, answered *histogram) {
	ended, answered = map[string]uint64{}, newHistogram(requestBuckets)
	m.duration.mu.RLock()
	defer m.duration.mu.RUnlock()
	for values, h := range m.duration.series {
		reason := "error"
		switch values[errorTypeLabel] {
		case "":
			reason = "stop"
			h.addTo(answered)
		case ClientGone.String(), WriteStall.String(), DeadlineExceeded.String():
			reason = "abort"
		}
		for i := range h.counts {
			ended[reason] += h.counts[i].Load()
		}
	}
	return ended, answered
}
