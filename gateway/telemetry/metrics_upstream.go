package telemetry

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	specUpstreamUp       = gauge("forebay_upstream_up", "1 when the server that is relayed to is used, or would be (a fallback); 0 where it is looked for, ejected or drained.", "upstream", "kind", "group")
	specGroupRequests    = gauge("forebay_group_requests", "Requests of a group of servers (upstream.groups), by state: running or waiting.", "group", "state")
	specUpstreamInside   = gauge("forebay_upstream_sequences", "Sequences at the server, as was sent and has not ended.", "upstream")
	specUpstreamPlaces   = gauge("forebay_upstream_places", "Sequences that may be at the server.", "upstream")
	specUpstreamPrefill  = gauge("forebay_upstream_prefill_tokens", "Prompt tokens at the server without a first token.", "upstream")
	specUpstreamOthers   = gauge("forebay_upstream_strangers", "Sequences of others at the server, by its own metrics.", "upstream")
	specUpstreamBlocks   = gauge("forebay_upstream_cache_blocks", "Blocks of prompts that the server holds, as far as its events told (upstream.kv_events).", "upstream")
	specUpstreamKnown    = gauge("forebay_upstream_cache_known", "1 where all that the server holds is known by its events, 0 where a part may be missing or no events come.", "upstream")
	specUpstreamMissed   = counter("forebay_upstream_cache_missed_total", "Times that events of the server's cache were missed or could not be read, or that it was started anew.", "upstream")
	specUpstreamLeft     = counter("forebay_upstream_cache_left_out_total", "Blocks of the server's cache that upstream.kv_blocks_max left no room for.", "upstream")
	specUpstreamCost     = gauge("forebay_upstream_cost_seconds", "What the server takes, as learned from its answers: delay (of a first token beside prefill), prompt_token, step (between two tokens of an answer).", "upstream", "term")
	specUpstreamQuiet    = gauge("forebay_upstream_quiet_seconds", "Time since the last event of an answer while the server has work; 0 without work.", "upstream")
	specUpstreamAnswers  = counter("forebay_upstream_answers_total", "Answers of the server: served, failed (by its fault), guessed (served without the reason of their end), uncounted (served without a usage, so that its events were counted).", "upstream", "result")
	specUpstreamResent   = counter("forebay_upstream_resent_total", "Requests that were sent again before their first byte, after an attempt at this server.", "upstream")
	specUpstreamRejected = counter("forebay_upstream_rejected_total", "Requests that the server had no room for.", "upstream")
	specUpstreamEjected  = counter("forebay_upstream_ejected_total", "Times that the server was taken out of use.", "upstream")
)

// collectUpstreams shows the servers that are relayed to.
func collectUpstreams(ch chan<- prometheus.Metric, s *wire.State) {
	for i := range s.Upstreams {
		u := &s.Upstreams[i]
		used := u.State == "up" || u.State == "starting" || u.State == "standby"
		ch <- specUpstreamUp.value(oneIf(used), u.Name, u.Kind, u.Group)
		ch <- specUpstreamInside.value(float64(u.Inside), u.Name)
		ch <- specUpstreamPlaces.value(float64(u.Places), u.Name)
		ch <- specUpstreamPrefill.value(float64(u.Prefill), u.Name)
		ch <- specUpstreamOthers.value(u.Strangers, u.Name)
		for term, d := range map[string]time.Duration{"delay": u.Delay, "prompt_token": u.Token, "step": u.Step} {
			ch <- specUpstreamCost.value(d.Seconds(), u.Name, term)
		}
		if c := u.Cache; c != nil {
			ch <- specUpstreamBlocks.value(float64(c.Blocks), u.Name)
			ch <- specUpstreamKnown.value(oneIf(c.State == "known"), u.Name)
			ch <- specUpstreamMissed.value(float64(c.Missed), u.Name)
			ch <- specUpstreamLeft.value(float64(c.Left), u.Name)
		}
		quiet := 0.
		if u.Inside > 0 && u.Heard > 0 {
			quiet = max(0, time.Duration(wire.Monotonic()-u.Heard).Seconds())
		}
		ch <- specUpstreamQuiet.value(quiet, u.Name)
		for result, n := range map[string]uint64{"served": u.Served, "failed": u.Failed, "guessed": u.Guessed, "uncounted": u.Uncounted} {
			ch <- specUpstreamAnswers.value(float64(n), u.Name, result)
		}
		ch <- specUpstreamResent.value(float64(u.Resent), u.Name)
		ch <- specUpstreamRejected.value(float64(u.Rejected), u.Name)
		ch <- specUpstreamEjected.value(float64(u.Ejected), u.Name)
	}
}
