package telemetry

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forebay-io/forebay/internal/wire"
)

var rewrite = flag.Bool("rewrite", false, "write the reference of the metrics anew")

// scrape reads the page as it is served.
func scrape(t testing.TB, r *Recorder, query, accept string) string {
	t.Helper()
	q := httptest.NewRequest("GET", "/metrics"+query, nil)
	q.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	r.MetricsPage().ServeHTTP(w, q)
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v: %s", w.Code, err, body)
	}
	return string(body)
}

// number is what a page says of one series, NaN-free; ok is false where it is
// not there.
func number(page, series string) (v float64, ok bool) {
	for line := range strings.Lines(page) {
		if rest, found := strings.CutPrefix(line, series+" "); found {
			v, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return v, err == nil
		}
	}
	return 0, false
}

func expectNumbers(t *testing.T, page string, want map[string]float64) {
	t.Helper()
	for series, v := range want {
		if got, ok := number(page, series); !ok || got < v-1e-9 || got > v+1e-9 {
			t.Errorf("%s is %v (there: %v), want %v", series, got, ok, v)
		}
	}
}

func quiet(t testing.TB, levels *Levels) *Recorder {
	t.Helper()
	r, err := New(Config{AccessLogOff: true}, nil, func() Levels { return *levels })
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fullRecorder has something to say for every metric.
func fullRecorder(t testing.TB) *Recorder {
	log := wire.NewStepLog(8)
	log.Add(&wire.StepRecord{Step: 1, Began: 1, Ended: 2, DecodeRows: 1})
	state := &wire.State{At: 1, Step: 1, GPU: wire.GPUState{Celsius: 60}, Model: wire.Model{ID: "m", PageTokens: 16, PageBytes: 1024}, Pages: wire.Pages{PagesTotal: 10, PagesUsed: 5}, Totals: wire.Totals{PrefillTokens: 100, DecodeTokens: 50, CachedTokens: 10}, Steps: log, Upstreams: []wire.UpstreamReport{{Name: "http://a", State: "up", Cache: &wire.UpstreamCache{}}}}
	r := quiet(t, &Levels{LimiterDry: []RuleCount{{"requests", 1}}, Engine: state, Classes: []ClassLevel{{Name: "batch"}}, Groups: []GroupLevel{{Name: "small"}}})
	r.metrics.power = openRAPL(powercap(t, map[string]string{"intel-rapl:0": "package-0"}))
	r.metrics.economy = newEconomy(r.metrics.engine, r.metrics.power, wire.Monotonic)
	writeFile(t, r.metrics.power.zones[0].file, "2000000")
	r.Price(3600)
	r.CountSpans(func() SpanCounts {
		return SpanCounts{Exported: 101, Failed: 102, QueueFull: 103, Stopped: 104, AttributesDropped: 105, Queued: 106}
	})
	r.CountCaptures(func() CaptureCounts {
		return CaptureCounts{Kept: []ReasonCount{{"broken", 2}}, Dropped: []ReasonCount{{"budget", 1}}, Brief: 1, DiskBytes: 4096, DiskErrors: 1}
	})
	r.CountIdentity(func() IdentityCounts {
		return IdentityCounts{Keys: []ReasonCount{{"active", 2}}, Refused: []ReasonCount{{"no_key", 1}}, Issuers: []IssuerCount{{Place: "keys.json"}}}
	})
	r.CountUsage(func() UsageCounts { return UsageCounts{Written: 3} })
	r.CountRateLimit(func() []ReasonCount { return []ReasonCount{{"ok", 1}} })
	r.CountPicks(func() []ReasonCount { return []ReasonCount{{"known", 1}} })
	r.CountHandshakes(func() []ReasonCount { return []ReasonCount{{"version", 1}} })
	r.CountPolicy(func() PolicyCounts { return PolicyCounts{Source: "kept"} })
	r.CountSiblings(func() SiblingCounts {
		return SiblingCounts{Placed: []ReasonCount{{"alone", 1}}, Hops: []ReasonCount{{"ok", 1}}}
	})
	r.Finish(fullRecord())
	r.Intervals("batch").Observe(1e6, 1)
	return r
}

func fullRecord() *Record {
	return &Record{
		ID: "a", Route: "chat_completions", Class: "batch", DemotedFrom: "interactive", Refused: "late", Model: "m", Stream: true, Outcome: ClientGone,
		Arrived: 1e9, Prepared: 2e9, Accepted: 25e8, Admitted: 3e9, Dispatched: 3e9, FirstToken: 4e9, LastToken: 5e9, FirstWrite: 4e9, Finished: 6e9, WaitPredicted: 1, Blocked: 1,
		Promised: time.Minute, FirstTokenGoal: time.Minute, TokenGoal: time.Second, PromptTokens: 3, ComputedTokens: 3, CompletionTokens: 3,
		Engine: wire.Timings{Received: 3e9, Scheduled: 3.5e9, FirstToken: 4e9, Finished: 5e9, AfterFirst: wire.Parts{1e9}},
	}
}

var typeLine = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)

// TestThePageIsTheCatalogue: what docs/metrics.md promises is on the page, and
// nothing else is.
func TestThePageIsTheCatalogue(t *testing.T) {
	r := fullRecorder(t)
	for query, specs := range map[string][]*spec{"": catalogue, "?compat=vllm": vllmSpecs()} {
		shown, promised := map[string]string{}, map[string]string{}
		for _, m := range typeLine.FindAllStringSubmatch(scrape(t, r, query, ""), -1) {
			if !strings.HasPrefix(m[1], "go_") && !strings.HasPrefix(m[1], "process_") && !strings.HasPrefix(m[1], "promhttp_") {
				shown[m[1]] = m[2]
			}
		}
		for _, s := range specs {
			promised[s.name] = s.kind
		}
		if diff := cmp.Diff(promised, shown); diff != "" {
			t.Errorf("/metrics%s (-promised +shown):\n%s", query, diff)
		}
	}
	w := httptest.NewRecorder()
	r.MetricsPage().ServeHTTP(w, httptest.NewRequest("GET", "/metrics?compat=tgi", nil))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "vllm") {
		t.Errorf("an unknown dialect: %d, %s", w.Code, w.Body)
	}
}

func vllmSpecs() (specs []*spec) {
	for _, s := range vllmCatalogue {
		specs = append(specs, s.spec)
	}
	return specs
}

// TestMetricsReference keeps docs/metrics.md what the code says.
func TestMetricsReference(t *testing.T) {
	const begin, end, file = "<!-- made by: go test ./gateway/telemetry -run TestMetricsReference -rewrite -->\n", "<!-- end -->", "../../docs/metrics.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, table := range []string{reference(catalogue), reference(vllmSpecs())} {
		before, rest, ok := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has not two places between %q and %q", file, begin, end)
		}
		page = before + "\x00" + table + "\x01" + after
	}
	page = strings.NewReplacer("\x00", begin, "\x01", end).Replace(page)
	if *rewrite {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), page); diff != "" {
		t.Errorf("%s differs from the code; run go test ./gateway/telemetry -run TestMetricsReference -rewrite:\n%s", file, diff)
	}
}

// TestHistogramCountsAsPrometheusDoes draws values and asks both.
func TestHistogramCountsAsPrometheusDoes(t *testing.T) {
	ours := &histograms{spec: &spec{buckets: tokenBuckets, desc: prometheus.NewDesc("x", "", nil, nil)}, kept: &atomic.Pointer[func(string) bool]{}, series: map[labels]*histogram{}}
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x", Buckets: tokenBuckets})
	for range 2000 {
		v := rand.ExpFloat64() / 10
		if rand.IntN(4) == 0 {
			v = tokenBuckets[rand.IntN(len(tokenBuckets))] // on the bound itself
		}
		ours.of(labels{}).observe(v, 1)
		theirs.Observe(v)
	}
	counts := func(c prometheus.Collector) (n []uint64, sum float64) {
		reg := prometheus.NewRegistry()
		reg.MustRegister(c)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		h := families[0].GetMetric()[0].GetHistogram()
		for _, k := range h.GetBucket() {
			n = append(n, k.GetCumulativeCount())
		}
		return append(n, h.GetSampleCount()), h.GetSampleSum()
	}
	want, wantSum := counts(theirs)
	got, gotSum := counts(ours)
	if diff := cmp.Diff(want, got); diff != "" || gotSum < wantSum*0.999 || gotSum > wantSum*1.001 {
		t.Errorf("sums %v and %v, counts (-theirs +ours):\n%s", wantSum, gotSum, diff)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	r := quiet(t, &Levels{})
	rec := fullRecord()
	r.Finish(rec)
	for i := range 3 * seriesMax {
		rec.Class, rec.Model = fmt.Sprint("class", i), fmt.Sprint("model", i)
		r.metrics.observeTimes(rec)
	}
	page := scrape(t, r, "", "")
	if n := strings.Count(page, "gen_ai_server_request_duration_seconds_count"); n != seriesMax+1 {
		t.Errorf("%d series, want %d and one for the others", n, seriesMax)
	}
	others := `gen_ai_server_request_duration_seconds_count{error_type="other",forebay_class="other",gen_ai_operation_name="other",gen_ai_provider_name="other",gen_ai_request_model="other"}`
	expectNumbers(t, page, map[string]float64{others: 2*seriesMax + 1})
	rec = fullRecord() // keeps its own after the flood
	r.metrics.observeTimes(rec)
	expectNumbers(t, scrape(t, r, "", ""), map[string]float64{others: 2*seriesMax + 1})
}

var exemplarLine = regexp.MustCompile(`# \{(?:request_id="([^"]*)",)?trace_id="([^"]*)"(?:,request_id="([^"]*)")?\} (\S+)`)

// exemplars are the trace ids by request id on the OpenMetrics page.
func exemplars(t *testing.T, r *Recorder) map[string]string {
	ids := map[string]string{}
	for _, m := range exemplarLine.FindAllStringSubmatch(scrape(t, r, "", "application/openmetrics-text; version=1.0.0"), -1) {
		ids[m[1]+m[3]] = m[2]
	}
	return ids
}

// TestEveryExemplarResolves: only what was kept is pointed at, and only as long
// as it can be looked at.
func TestEveryExemplarResolves(t *testing.T) {
	r := quiet(t, &Levels{})
	held := map[string]string{}
	n := 0
	r.OfferTo(func(rec *Record) bool {
		if n++; n%3 == 0 {
			held[rec.ID] = fmt.Sprintf("%x", rec.Trace.TraceID)
		}
		return n%3 == 0
	})
	for i := range 300 {
		rec := fullRecord()
		rec.ID, rec.FirstWrite, rec.Finished = fmt.Sprint("r", i), 4e9+rand.Int64N(40e9), 45e9+rand.Int64N(200e9)
		rec.Trace, _ = Trace("", "")
		r.Finish(rec)
	}
	if got := exemplars(t, r); len(got) > 0 {
		t.Errorf("nobody says what can be looked at, and there are exemplars: %v", got)
	}
	r.ResolveExemplars(func(id string) bool { return held[id] != "" })
	all := exemplars(t, r)
	if len(all) < 3 {
		t.Fatalf("%d exemplars of 100 requests that were kept", len(all))
	}
	for id, trace := range all {
		if held[id] != trace {
			t.Errorf("the exemplar of %q has trace %s; that request has %q", id, trace, held[id])
		}
	}
	for id := range all { // the store lets go of one
		delete(held, id)
		if _, there := exemplars(t, r)[id]; there {
			t.Errorf("%s is pointed at and gone", id)
		}
		break
	}
	if page := scrape(t, r, "", "text/plain"); strings.Contains(page, "trace_id") {
		t.Error("the text format has exemplars, which it does not know")
	}
}

func TestGoalsAreCounted(t *testing.T) {
	const ms = int64(time.Millisecond)
	for name, c := range map[string]struct {
		change func(*Record)
		want   string // slo=result
	}{
		"kept all":         {func(*Record) {}, "first_token=met queue=met served=met token=met"},
		"late first token": {func(r *Record) { r.FirstWrite = r.Arrived + 3000*ms }, "first_token=broken queue=met served=met token=met"},
		"slow tokens":      {func(r *Record) { r.LastToken = r.FirstToken + 900*ms }, "first_token=met queue=met served=met token=broken"},
		"one token":        {func(r *Record) { r.CompletionTokens, r.LastToken = 1, r.FirstToken }, "first_token=met queue=met served=met"},
		"waited too long":  {func(r *Record) { r.Admitted = r.Prepared + 2500*ms; r.FirstWrite = r.Admitted + ms }, "first_token=broken queue=broken served=met token=met"},
		"no goals":         {func(r *Record) { r.FirstTokenGoal, r.TokenGoal = 0, 0 }, "served=met"},
		"left early": {func(r *Record) {
			r.FirstToken, r.FirstWrite, r.LastToken, r.Outcome, r.Finished = 0, 0, 0, ClientGone, r.Admitted+1
		}, "queue=met"},
		"left late": {func(r *Record) { r.FirstToken, r.FirstWrite, r.LastToken, r.Outcome = 0, 0, 0, ClientGone }, "first_token=broken queue=met"},
		"refused as late": {func(r *Record) {
			*r = Record{Class: "interactive", Prepared: 2, Outcome: Late, Finished: 3, FirstTokenGoal: r.FirstTokenGoal}
		}, "first_token=broken queue=broken served=broken"},
		"over budget": {func(r *Record) {
			*r = Record{Class: "interactive", Prepared: 2, Outcome: RateLimited, Finished: 3, FirstTokenGoal: r.FirstTokenGoal}
		}, ""},
		"wrong": {func(r *Record) {
			*r = Record{Class: "interactive", Outcome: Invalid, Finished: 3, FirstTokenGoal: r.FirstTokenGoal}
		}, ""},
		"engine gone":        {func(r *Record) { *r = Record{Class: "interactive", Outcome: EngineUnavailable, Finished: 3} }, "served=broken"},
		"of no class":        {func(r *Record) { *r = Record{Class: "none", Outcome: Draining, Finished: 3} }, ""},
		"broke in the midst": {func(r *Record) { r.Outcome = EngineError }, "first_token=met queue=met served=broken token=met"},
	} {
		r := quiet(t, &Levels{})
		rec := Record{
			Class: "interactive", Stream: true, Outcome: OK, Arrived: 1, Prepared: 2, Admitted: 3, FirstToken: 100 * ms, FirstWrite: 100 * ms, LastToken: 200 * ms,
			Finished: 5000 * ms, CompletionTokens: 11, FirstTokenGoal: 2 * time.Second, TokenGoal: 50 * time.Millisecond,
		}
		c.change(&rec)
		r.Finish(&rec)
		var got []string
		for _, m := range regexp.MustCompile(`forebay_slo_requests_total\{class="interactive",result="(\w+)",slo="(\w+)"\} 1`).FindAllStringSubmatch(scrape(t, r, "", ""), -1) {
			got = append(got, m[2]+"="+m[1])
		}
		slices.Sort(got)
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
}

func TestIntervalsAllocateNothing(t *testing.T) {
	r := quiet(t, &Levels{})
	i := r.Intervals("interactive")
	if n := testing.AllocsPerRun(100, func() { i.Observe(5e6, 1) }); n != 0 {
		t.Errorf("%v allocations a token", n)
	}
	i.Observe(8e6, 4) // four tokens in one event
	i.Observe(-1, 1)
	i.Observe(1, 0)
	Intervals{}.Observe(1, 1)
	page := scrape(t, r, "", "")
	expectNumbers(t, page, map[string]float64{
		`forebay_token_interval_seconds_count{class="interactive"}`:             105,
		`forebay_token_interval_seconds_bucket{class="interactive",le="0.002"}`: 4,
		`forebay_token_interval_seconds_sum{class="interactive"}`:               101*.005 + .008,
	})
}

func BenchmarkInterval(b *testing.B) {
	i := quiet(b, &Levels{}).Intervals("interactive")
	b.ReportAllocs()
	for b.Loop() {
		i.Observe(5e6, 1)
	}
}

// BenchmarkHeard is what a step costs the metrics, with its record.
func BenchmarkHeard(b *testing.B) {
	r := quiet(b, &Levels{})
	log := wire.NewStepLog(8)
	state := &wire.State{Steps: log}
	record := wire.StepRecord{DecodeRows: 4, Members: make([]wire.StepMember, 4)}
	b.ReportAllocs()
	for b.Loop() {
		state.At++
		state.Step++
		record.Step++
		log.Add(&record)
		r.Heard(state)
	}
}

func BenchmarkFinish(b *testing.B) {
	r := quiet(b, &Levels{})
	rec := fullRecord()
	b.ReportAllocs()
	for b.Loop() {
		r.Finish(rec)
	}
}

func BenchmarkScrape(b *testing.B) {
	r := fullRecorder(b)
	b.ReportAllocs()
	for b.Loop() {
		scrape(b, r, "", "")
	}
}

// powercap makes a tree as Linux shows, of zones' directories and names.
func powercap(t testing.TB, zones map[string]string) string {
	root := t.TempDir()
	for _, dir := range slices.Sorted(maps.Keys(zones)) {
		os.MkdirAll(filepath.Join(root, dir), 0o755)
		writeFile(t, filepath.Join(root, dir, "name"), zones[dir]+"\n")
		writeFile(t, filepath.Join(root, dir, "max_energy_range_uj"), "10000000\n")
		writeFile(t, filepath.Join(root, dir, "energy_uj"), "1000000\n")
	}
	return root
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
