package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay-io/forebay/internal/wire"
)

// Metrics of requests, counted when they end.
var (
	specRequests   = counter("forebay_requests_total", "Finished requests by outcome.", "route", "class", "outcome")
	specTokens     = counter("forebay_tokens_total", "Tokens of finished requests: prompt (computed, or found in the cache), cached (a part of prompt), completion (generated, whether the client took it or not).", "kind")
	specClientGone = counter("forebay_client_gone_total", "Requests whose client left before the answer was complete.")
	specUnanswered = counter("forebay_cancel_unanswered_total", "Requests that ended early, and of which the engine did not say within gateway.timeouts.cancel_limit what it had computed; they are counted and charged by what is known.")
	specDemoted    = counter("forebay_admission_demoted_total", "Requests that ran in a lower class, by the class they came from.", "class")
	specSLO        = counter("forebay_slo_requests_total", "Finished requests that met or broke a goal of their class: first_token, token (the time between tokens), queue; and served, which a failure or a refusal breaks unless the client caused it. A request is counted for a goal only if the goal applies to it.", "class", "slo", "result")
	specTime       = counter("forebay_request_time_seconds_total", "Time of finished requests in the engine by cause: own computing, others' prefill or decode in the same steps, gap between steps, waits for pages and places, and so on.", "class", "part")
	specBlocked    = counter("forebay_request_blocked_seconds_total", "Time in writes to clients that read slowly.", "class")

	specFirstToken = distribution(firstTokenBuckets, "gen_ai_server_time_to_first_token_seconds", "From arrival to the first content written, once for each request that got content.", "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "forebay_class")
	specPerToken   = distribution(tokenBuckets, "gen_ai_server_time_per_output_token_seconds", "Mean time between the tokens of a choice, once for each request with a second one.", "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "forebay_class")
	specDuration   = distribution(requestBuckets, "gen_ai_server_request_duration_seconds", "From arrival to the end of the answer, which is the time to the last token.", "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type", "forebay_class")

	specInterval   = distribution(tokenBuckets, "forebay_token_interval_seconds", "Time between two tokens of a choice, as they come from the engine, for every token but the first.", "class")
	specQueue      = distribution(secondsBuckets, "forebay_admission_wait_seconds", "From the end of preparing to admission, by class.", "class")
	specEngineWait = distribution(secondsBuckets, "forebay_request_engine_wait_seconds", "From when the engine takes a request to the first step that works for it.", "class")
	specPrefill    = distribution(secondsBuckets, "forebay_request_prefill_seconds", "From the first step that works for a request to its first token.", "class")
	specDecode     = distribution(secondsBuckets, "forebay_request_decode_seconds", "From a request's first token to its last.", "class")
	specPrompt     = distribution(lengthBuckets, "forebay_request_prompt_tokens", "Prompt tokens of requests that were computed or found in the cache, once for each request that has any.", "class")
	specCompletion = distribution(lengthBuckets, "forebay_request_completion_tokens", "Tokens generated for requests that got content, all choices together.", "class")
)

// provider is the value of gen_ai.provider.name.
const provider = "forebay"

type metrics struct {
	requests, tokens, demoted, goals, time, blocked *prometheus.CounterVec

	clientGone, unanswered prometheus.Counter
	promises               promises
	usage                  tenantUsage
	lines                  atomic.Pointer[func() UsageCounts]

	firstToken, perToken, duration, interval, queue, engineWait, prefill, decode, prompt, completion *histograms

	levels     func() Levels
	engine     *engineMetrics
	power      *rapl
	economy    *economy
	kept       atomic.Pointer[func(id string) bool] // nil before ResolveExemplars
	capture    atomic.Pointer[func() CaptureCounts]
	identity   atomic.Pointer[func() IdentityCounts]
	policy     atomic.Pointer[func() PolicyCounts]
	siblings   atomic.Pointer[func() SiblingCounts]
	rateLimit  atomic.Pointer[func() []ReasonCount]
	picks      atomic.Pointer[func() []ReasonCount]
	handshakes atomic.Pointer[func() []ReasonCount]
	proxies    [2]*histogram // by ProxyService
	spans      atomic.Pointer[func() SpanCounts]
	build      [3]string      // of specBuild
	own        map[*spec]bool // specs with a collector of their own, beside levelCollector
}

// powercapRoot is where Linux shows the energy that processors used.
const powercapRoot = "/sys/class/powercap"

func newMetrics(reg *prometheus.Registry, cfg *Config, levels func() Levels) *metrics {
	m := &metrics{levels: levels, engine: newEngineMetrics(), power: openRAPL(powercapRoot), build: buildLabels(), own: map[*spec]bool{}, proxies: [2]*histogram{newHistogram(gapBuckets), newHistogram(gapBuckets)}}
	m.economy = newEconomy(m.engine, m.power, wire.Monotonic)
	vector := func(s *spec) *prometheus.CounterVec {
		v := s.vector()
		m.own[s] = true
		reg.MustRegister(v)
		return v
	}
	family := func(s *spec) *histograms {
		f := &histograms{spec: s, kept: &m.kept, series: map[labels]*histogram{}}
		m.own[s] = true
		reg.MustRegister(f)
		return f
	}
	m.requests, m.tokens, m.demoted = vector(specRequests), vector(specTokens), vector(specDemoted)
	m.goals, m.time, m.blocked = vector(specSLO), vector(specTime), vector(specBlocked)
	m.clientGone, m.unanswered = vector(specClientGone).WithLabelValues(), vector(specUnanswered).WithLabelValues()
	m.firstToken, m.perToken, m.duration = family(specFirstToken), family(specPerToken), family(specDuration)
	m.interval, m.queue, m.engineWait, m.prefill, m.decode = family(specInterval), family(specQueue), family(specEngineWait), family(specPrefill), family(specDecode)
	m.prompt, m.completion = family(specPrompt), family(specCompletion)
	m.usage.max, m.usage.keysMax, m.usage.known, m.usage.uses = cfg.TenantsMax, cfg.KeysMax, map[string]bool{}, map[[2]string]*Use{}
	m.usage.requests, m.usage.tokens, m.usage.cost = vector(specTenantRequests), vector(specTenantTokens), vector(specTenantCost)
	m.promises = promises{vector(specPromises), vector(specRefused), family(specRefusal), family(specRatio), family(specMistake)}
	reg.MustRegister(levelCollector{m})
	return m
}

func (m *metrics) observe(r *Record) {
	m.requests.WithLabelValues(r.Route, r.Class, r.Outcome.String()).Inc()
	if r.Route == RouteSibling {
		return
	}
	if used := r.CachedTokens + r.ComputedTokens; used > 0 {
		m.tokens.WithLabelValues("prompt").Add(float64(used))
		m.prompt.of(labels{r.Class}).observe(float64(used), 1)
	}
	if r.Unanswered {
		m.unanswered.Inc()
	}
	m.tokens.WithLabelValues("cached").Add(float64(r.CachedTokens))
	m.tokens.WithLabelValues("completion").Add(float64(r.CompletionTokens))
	if r.Outcome == ClientGone {
		m.clientGone.Inc()
	}
	if r.DemotedFrom != "" {
		m.demoted.WithLabelValues(r.DemotedFrom).Inc()
	}
	m.usage.observe(r)
	m.promises.observe(r)
	m.observeGoals(r)
	m.observeTimes(r)
	m.observeEngine(r)
}

// observeTimes counts the times that clients see.
func (m *metrics) observeTimes(r *Record) {
	operation := ""
	switch r.Route {
	case "chat_completions", "responses", "messages":
		operation = "chat"
	case "completions":
		operation = "text_completion"
	case "embeddings", "rerank":
		operation = "embeddings"
	default:
		return
	}
	failure := ""
	if r.Outcome != OK {
		failure = r.Outcome.String()
	}
	m.duration.of(labels{operation, provider, r.Model, failure, r.Class}).note(seconds(r.Finished-r.Arrived), r)
	of := labels{operation, provider, r.Model, r.Class}
	if d := r.FirstTokenDelay(); d > 0 {
		m.firstToken.of(of).note(seconds(d), r)
		m.completion.of(labels{r.Class}).observe(float64(r.CompletionTokens), 1)
	}
	if d := r.TokenTime(); d > 0 {
		m.perToken.of(of).note(d/1e9, r)
	}
	if r.Admitted != 0 {
		m.queue.of(labels{r.Class}).note(seconds(r.Admitted-r.Prepared), r)
	}
	if r.Blocked > 0 {
		m.blocked.WithLabelValues(r.Class).Add(r.Blocked.Seconds())
	}
}

// observeEngine counts the engine's times of the request.
func (m *metrics) observeEngine(r *Record) {
	t, class := &r.Engine, labels{r.Class}
	if t.Scheduled != 0 {
		m.engineWait.of(class).observe(seconds(t.Scheduled-t.Received), 1)
	}
	if t.FirstToken != 0 && t.Scheduled != 0 {
		m.prefill.of(class).observe(seconds(t.FirstToken-t.Scheduled), 1)
		m.decode.of(class).observe(seconds(t.Finished-t.FirstToken), 1)
	}
	for part := range wire.PartCount {
		if d := t.BeforeFirst[part] + t.AfterFirst[part]; d > 0 {
			m.time.WithLabelValues(r.Class, part.String()).Add(d.Seconds())
		}
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// goalServed is the goal that every class has: to be answered.
const goalServed = "served"

// observeGoals counts which goals r met and which it broke.
func (m *metrics) observeGoals(r *Record) {
	fault := outcomes[r.Outcome].ourFault
	if r.Prepared == 0 && !fault || r.Class == "" || r.Class == "none" {
		return
	}
	count := func(goal string, broken, met bool) {
		m.showGoal(r.Class, goal) // Prometheus sees no rise in a series that begins with 1
		switch {
		case broken:
			m.goals.WithLabelValues(r.Class, goal, "broken").Inc()
		case met:
			m.goals.WithLabelValues(r.Class, goal, "met").Inc()
		}
	}
	if r.FirstTokenGoal > 0 {
		count("first_token", fault && r.FirstToken == 0 || r.Broken&FirstTokenGoal != 0, r.FirstTokenDelay() > 0)
		count("queue", r.Broken&QueueGoal != 0, r.Admitted != 0)
	}
	if r.TokenGoal > 0 {
		count("token", r.Broken&TokenGoal != 0, r.TokenTime() > 0)
	}
	count(goalServed, fault, r.Outcome == OK)
}

// showGoal makes both results of a goal appear on the page.
func (m *metrics) showGoal(class, goal string) {
	m.goals.WithLabelValues(class, goal, "met")
	m.goals.WithLabelValues(class, goal, "broken")
}
