package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// metrics is the admin page's text.
func (r *rig) metrics() string {
	r.t.Helper()
	resp, err := http.Get("http://" + r.admin + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		r.t.Fatal(resp.StatusCode, err)
	}
	return string(b)
}

// metric is the sum of a metric's values over its labels.
func (r *rig) metric(name string) (sum float64) {
	for _, line := range strings.Split(r.metrics(), "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if ok && (rest[0] == ' ' || rest[0] == '{') {
			var v float64
			fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v)
			sum += v
		}
	}
	return sum
}

func TestH01LabelsAreClosedSets(t *testing.T) {
	r := simpleRig(t, hello)
	r.chat("")
	r.do("POST", "/v1/chat/completions", strings.Replace(chatBody(""), "fake", "x", 1))
	before := strings.Count(r.metrics(), "\n")
	for i := range 300 {
		name := fmt.Sprintf(`m%d\"\n%s`, rand.Uint64(), strings.Repeat("z", i*10))
		r.do("POST", "/v1/chat/completions", strings.Replace(chatBody(`"user":"u`+name+`"`), "fake", name, 1), "X-Class", fmt.Sprint(i), "Authorization", fmt.Sprint("Bearer ", i))
	}
	if after := strings.Count(r.metrics(), "\n"); after > before+50 {
		t.Errorf("%d lines became %d", before, after)
	}
	if r.metric("forebay_requests_total") != 302 {
		t.Errorf("%v requests counted", r.metric("forebay_requests_total"))
	}
}

func TestH08TheEngineGetsTheTrace(t *testing.T) {
	r := simpleRig(t, hello)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r.do("POST", "/v1/chat/completions", chatBody(""), "Traceparent", parent, "Tracestate", "a=1")
	r.raw(rawPost("/v1/chat/completions", chatBody(""), "Traceparent: "+parent, "Traceparent: "+parent, "Connection: close"))
	records := r.fake.Records()
	first, second := records[0].Trace, records[1].Trace
	if fmt.Sprintf("%x", first.TraceID) != parent[3:35] || fmt.Sprintf("%x", first.SpanID) == parent[36:52] || first.State != "a=1" {
		t.Errorf("trace %+v", first)
	}
	if fmt.Sprintf("%x", second.TraceID) == parent[3:35] || second.TraceID == [16]byte{} {
		t.Errorf("a header sent twice was taken: %+v", second)
	}
}

func TestH09FirstTokenIsObservedOnce(t *testing.T) {
	script := func(g *wire.Generation) wiretest.Script {
		switch {
		case strings.Contains(g.Prompt.Text, "nothing"):
			return wiretest.Script{}
		case strings.Contains(g.Prompt.Text, "hang"):
			return wiretest.Script{Hang: true}
		}
		return wiretest.Script{Pieces: []string{"x"}, FirstDelay: 30 * time.Millisecond}
	}
	r := newRig(t, rigConfig{fake: wiretest.FakeConfig{Script: script}, gateway: Config{Timeouts: TimeoutConfig{CommitLimit: 5 * time.Millisecond, KeepAlive: 5 * time.Millisecond}}})
	count := func() float64 { return r.metric("forebay_time_to_first_token_seconds_count") }
	expect := func(name string, want float64) {
		t.Helper()
		r.settled()
		if got := count(); got != want {
			t.Errorf("%s: %v observations, want %v", name, got, want)
		}
	}
	r.chat(`"stream":true`)
	expect("one token after comments", 1)
	if mean := r.metric("forebay_time_to_first_token_seconds_sum"); mean < 0.03 {
		t.Errorf("observed %v s, before the token", mean)
	}
	r.chat("")
	expect("plain", 2)
	r.do("POST", "/v1/chat/completions", strings.Replace(chatBody(`"stream":true`), "hi", "nothing", 1))
	expect("no content", 2)
	c := r.dial()
	io.WriteString(c, rawPost("/v1/chat/completions", strings.Replace(chatBody(`"stream":true`), "hi", "hang", 1)))
	if _, err := readLine(bufio.NewReader(c), ": keep-alive"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	expect("left before the first token", 2)
	if r.metric("forebay_client_gone_total") != 1 {
		t.Error("the client that left was not counted")
	}
}

func TestH11LevelsAreZeroWhenIdle(t *testing.T) {
	r := simpleRig(t, endless)
	r.chat(`"n":0`)
	r.chat(`"max_tokens":3`)
	c := r.dial()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`)))
	if !eventually(3*time.Second, func() bool {
		return r.metric("forebay_requests_running") == 1 && r.metric("forebay_engine_sequences") == 1
	}) {
		t.Error("a running request is not shown")
	}
	c.Close()
	r.settled()
	for _, name := range []string{"forebay_requests_running", "forebay_requests_waiting", "forebay_engine_sequences", "forebay_kv_pages_used"} {
		if v := r.metric(name); v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if r.metric("forebay_requests_total") != 3 || r.metric("forebay_tokens_total") == 0 {
		t.Error("requests or tokens were not counted")
	}
}

// TestDebugPage is for whoever is on call: a client's own request id finds
// its request, the oldest comes first, and the newest of the finished.
func TestDebugPage(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless), admission: admission.Config{RunningSequencesMax: 1}})
	r.do("POST", "/v1/chat/completions", chatBody(`"n":0`), "X-Request-Id", "bad")
	r.do("POST", "/v1/chat/completions", chatBody(`"max_tokens":3`), "X-Request-Id", "good")
	r.settled()
	for i, id := range []string{"first", "second"} {
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`), "X-Request-Id: "+id))
		eventually(3*time.Second, func() bool { return r.fifo.Load().Running+r.fifo.Load().Waiting == i+1 })
	}
	resp, err := http.Get("http://" + r.admin + "/debug/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct {
		Live  []liveRow  `json:"in_flight"`
		Ended []endedRow `json:"finished"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil || len(page.Live) != 2 || len(page.Ended) != 2 {
		t.Fatalf("%v: %+v", err, page)
	}
	first, second := page.Live[0], page.Live[1]
	if first.ClientID != "first" || first.Stage != "generating" || second.ClientID != "second" || second.Stage != "queued" || first.AgeMS < second.AgeMS || first.StageMS > first.AgeMS || first.StageMS <= 0 || len(first.TraceID) != 32 {
		t.Errorf("in flight %+v", page.Live)
	}
	good, bad := page.Ended[0], page.Ended[1]
	if good.ClientID != "good" || good.Outcome != "ok" || good.CompletionTokens != 3 || good.PromptTokens == 0 || good.FirstTokenMS <= 0 || good.TotalMS < good.FirstTokenMS || good.AgoMS <= 0 {
		t.Errorf("finished %+v", good)
	}
	if bad.ClientID != "bad" || bad.Outcome != "invalid" || bad.Error != "invalid_value" || bad.Status != 400 || bad.QueueMS != 0 {
		t.Errorf("refused %+v", bad)
	}
}
