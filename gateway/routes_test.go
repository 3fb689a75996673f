package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// last waits for a record to come and returns it.
func (r *rig) last(before int) telemetry.Record {
	r.t.Helper()
	if !eventually(3*time.Second, func() bool { return len(r.recorder.Last(100)) == before+1 }) {
		r.t.Fatalf("%d records, want %d", len(r.recorder.Last(100)), before+1)
	}
	return r.recorder.Last(1)[0]
}

func TestIdentityHidesNoRequest(t *testing.T) {
	r := simpleRig(t, hello)
	second := "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, head := range []string{
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ntransfer-encoding:IDENTITY\r\nContent-Length: 0\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: identity\r\n\r\n",
	} {
		got := r.raw(head + second)
		if answers(got) != 1 || !strings.HasPrefix(got, "HTTP/1.1 501") || !strings.Contains(got, "Connection: close") || strings.Contains(got, "<") {
			t.Errorf("%q: %s", head, got)
		}
	}
	// An empty body in chunks has one reading, and the connection stays.
	empty := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	if got := r.raw(empty + "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); answers(got) != 2 {
		t.Errorf("empty chunked: %s", got)
	}
}

func TestRefusalsNeedNoBody(t *testing.T) {
	r := simpleRig(t, hello)
	for request, want := range map[string]string{
		"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n":                               "404",
		"PUT /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n":                         "405",
		"POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n":                             "405",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n":                              "415",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nOrigin: http://evil\r\n": "403",
	} {
		got := r.raw(request + "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n")
		if answers(got) != 1 || !strings.HasPrefix(got, "HTTP/1.1 "+want) || strings.Contains(got, "<") {
			t.Errorf("%s: %s", request, got)
		}
	}
	if resp := r.do("POST", "/v1/completions", textBody(""), "Expect", "zzz"); resp.status != 417 || !strings.Contains(resp.body, "expectation_failed") {
		t.Errorf("%d %s", resp.status, resp.body)
	}
}

func TestOneMethodIsNamedPlainly(t *testing.T) {
	r := simpleRig(t, hello)
	for path, want := range map[string]string{"/v1/completions": `"the method must be POST"`, "/v1/models": `"the method must be one of GET, HEAD"`} {
		if resp := r.do("DELETE", path, ""); !strings.Contains(resp.body, want) {
			t.Errorf("%s", resp.body)
		}
	}
}

// TestEveryRequestIsRecorded: what no generation route answers leaves a record
// too; probes do not.
func TestEveryRequestIsRecorded(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), records: 64, gateway: Config{CORSOrigins: "http://a.test"}})
	long := strings.Repeat("z", 300) + "\u00e9"
	before := 0
	for _, c := range []struct {
		method, path, body, route string
		outcome                   telemetry.Outcome
		status                    int
		param, text               string
	}{
		{"GET", "/v1/models", "", "models", telemetry.OK, 200, "", ""},
		{"GET", "/v1/models/fake", "", "model", telemetry.OK, 200, "", ""},
		{"GET", "/version", "", "version", telemetry.OK, 200, "", ""},
		{"OPTIONS", "/v1/models", "", "models", telemetry.OK, 204, "", ""},
		{"GET", "/v1/models/oth\"er", "", "model", telemetry.NotFound, 404, "model", `"oth\"er"`},
		{"GET", "/nothing", "", "unknown", telemetry.NotFound, 404, "", `"/nothing"`},
		{"GET", "/v1/chat/completions", "", "chat_completions", telemetry.Invalid, 405, "", ""},
		{"POST", "/healthz", "", "probe", telemetry.Invalid, 405, "", ""},
		{"POST", "/v1/chat/completions", strings.Replace(chatBody(""), "fake", long, 1), "chat_completions", telemetry.NotFound, 404, "model", `"` + long[:64] + `\u2026"`},
		{"POST", "/v1/chat/completions", chatBody(`"temperature":9`), "chat_completions", telemetry.Invalid, 400, "temperature", ""},
		{"POST", "/v1/completions", textBody(""), "completions", telemetry.OK, 200, "", ""},
	} {
		resp := r.do(c.method, c.path, c.body)
		got := r.last(before)
		before++
		if got.Route != c.route || got.Outcome != c.outcome || got.Status != c.status || resp.status != c.status || got.Param != c.param || got.ErrorText != c.text || got.Finished < got.Arrived {
			t.Errorf("%s %s: %d, %+v", c.method, c.path, resp.status, got)
		}
		if id := resp.header.Get(requestIDHeader); id != got.ID {
			t.Errorf("%s %s: the answer has the id %s, the record %s", c.method, c.path, id, got.ID)
		}
	}
	for _, probe := range []string{"/healthz", "/readyz"} {
		r.do("GET", probe, "")
	}
	if n := len(r.recorder.Last(100)); n != before {
		t.Errorf("probes left %d records", n-before)
	}
}

func TestLeavingWhileSendingIsNoMistake(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), records: 64})
	before := 0
	for _, part := range []string{
		"POST /v1/completions HT",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-A: ",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
	} {
		c := r.dial()
		io.WriteString(c, part)
		time.Sleep(10 * time.Millisecond)
		c.Close()
		if got := r.last(before); got.Outcome != telemetry.ClientGone || got.Status != 499 || got.ErrorKind != "client_gone" {
			t.Errorf("%q: %+v", part, got)
		}
		before++
	}
	// Who connects and says nothing has asked for nothing.
	c := r.dial()
	c.Close()
	time.Sleep(50 * time.Millisecond)
	if n := len(r.recorder.Last(100)); n != before {
		t.Errorf("a silent connection left %d records", n-before)
	}
}

func TestPagesOfOthersMayNotCall(t *testing.T) {
	off := simpleRig(t, hello)
	on := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{CORSOrigins: "http://a.test"}})
	open := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{CORSOrigins: "*"}})
	_, port, _ := strings.Cut(off.addr, ":")
	for _, c := range []struct {
		rig          *rig
		host, origin string
		status       int
	}{
		{off, "", "http://evil.test", 403}, {off, "", "null", 403}, {off, "", "http://" + off.addr, 200},
		{off, "localhost:" + port, "http://localhost:" + port, 200}, {off, "[::1]:" + port, "http://[::1]:" + port, 200},
		// the page's owner has pointed the name here
		{off, "evil.test:" + port, "http://evil.test:" + port, 403},
		{off, "localhost:" + port, "http://localhost:1", 403},
		{on, "", "http://a.test", 200}, {on, "", "http://b.test", 403}, {open, "", "http://b.test", 200},
	} {
		req, err := http.NewRequest("POST", "http://"+c.rig.addr+"/v1/chat/completions", strings.NewReader(chatBody("")))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		req.Header.Set("Origin", c.origin)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.rig.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("host %q, origin %q: %d %s", c.host, c.origin, resp.StatusCode, body)
		}
		if c.status == 403 {
			if code, _ := errorOf(t, string(body)); code != "origin_not_allowed" {
				t.Errorf("code %s", code)
			}
		}
	}
	// A browser sends a text without a type, and without asking first.
	if resp := off.do("POST", "/v1/chat/completions", chatBody(""), "Content-Type", "", "Origin", "http://"+off.addr); resp.status != 415 {
		t.Errorf("no type: %d %s", resp.status, resp.body)
	}
}

// awayEngine has nothing to serve, and knows for how long.
type awayEngine struct{ *wiretest.Fake }

func (awayEngine) State() *wire.State {
	return &wire.State{At: wire.Monotonic(), Err: &wire.Error{Kind: wire.Unavailable, Message: "the engine keeps ending; it starts again in 27s", RetryAfter: 27 * time.Second}}
}

func TestRetryAfterIsTheEngines(t *testing.T) {
	r := simpleRig(t, hello)
	r.gw.engine = awayEngine{r.fake}
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/chat/completions", chatBody("")}, {"GET", "/v1/models", ""}, {"GET", "/v1/models/fake", ""}, {"GET", "/readyz", ""},
	} {
		resp := r.do(c.method, c.path, c.body)
		if wait := resp.header.Get("Retry-After"); resp.status != 503 || len(wait) != 2 || wait < "27" || wait > "34" || !strings.Contains(resp.body, "27s") {
			t.Errorf("%s: %d, Retry-After %q, %s", c.path, resp.status, wait, resp.body)
		}
	}
	// So it is where the call itself knew less.
	if f := r.gw.failureOf(&wire.Error{Kind: wire.Unavailable, RetryAfter: time.Second}); f.retryAfter != 27*time.Second {
		t.Errorf("%v", f.retryAfter)
	}
}

func TestAdminPages(t *testing.T) {
	r := simpleRig(t, hello)
	for path, want := range map[string]string{
		"/version":                       `{"version":"test"}`,
		"/metrics":                       "go_goroutines",
		"/debug/pprof/":                  "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/nothing":                       "unknown_url",
	} {
		resp, err := http.Get("http://" + r.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %.200s", path, resp.StatusCode, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for _, name := range []string{"process_resident_memory_bytes", "go_build_info", "go_memstats_heap_alloc_bytes"} {
		if !strings.Contains(r.metrics(), name) {
			t.Errorf("no %s", name)
		}
	}
	if resp := r.do("GET", "/debug/pprof/", ""); resp.status != 404 {
		t.Errorf("profiles on the API's address: %d", resp.status)
	}
	if n := len(r.recorder.Last(100)); n != 1 {
		t.Errorf("%d records", n)
	}
}
