package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/debug"
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

func TestTheEngineGetsTheTrace(t *testing.T) {
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

// TestDebugPage: a client's own request id finds its request; of those in flight
// the oldest comes first, of the finished ones the newest.
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
	resp, err := http.Get("http://" + r.admin + "/debug/requests?format=json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct {
		Live  []debug.RequestLive  `json:"in_flight"`
		Ended []debug.RequestEnded `json:"finished"`
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
