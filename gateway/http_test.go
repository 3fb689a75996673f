package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

var hello = wiretest.Script{Pieces: []string{"Hello", " world"}}

// answers counts the responses in raw bytes.
func answers(raw string) int { return strings.Count(raw, "HTTP/1.1 ") }

func TestBothLengthsNeverHideARequest(t *testing.T) {
	r := simpleRig(t, hello)
	second := rawPost("/v1/completions", textBody(""))
	for _, headers := range []string{"Content-Length: 6\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 6"} {
		got := r.raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n\r\n0\r\n\r\nX" + second)
		if answers(got) != 1 || !strings.HasPrefix(got, "HTTP/1.1 400") || strings.Contains(got, "<") {
			t.Errorf("%q: %s", headers, got)
		}
	}
	if n := len(r.fake.Records()); n != 0 {
		t.Errorf("the engine saw %d requests", n)
	}
}

func TestAmbiguousFramingIsRefused(t *testing.T) {
	r := simpleRig(t, hello)
	body := textBody("")
	for name, headers := range map[string]string{
		"two chunked":      "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"space":            "Transfer-Encoding : chunked",
		"chunked identity": "Transfer-Encoding: chunked, identity",
		"gzip coding":      "Transfer-Encoding: gzip",
		"two lengths":      "Content-Length: 5\r\nContent-Length: 6",
		"plus":             "Content-Length: +5",
		"minus":            "Content-Length: -1",
		"list":             "Content-Length: 5, 6",
		"not a number":     "Content-Length: 5x",
		"huge":             "Content-Length: 99999999999999999999",
	} {
		got := r.raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n\r\n" + body + rawPost("/v1/completions", body))
		want := "HTTP/1.1 400"
		if name == "gzip coding" {
			want = "HTTP/1.1 501"
		}
		if answers(got) != 1 || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, chunk := range map[string]string{"overflow": "FFFFFFFFFFFFFFFF1\r\n", "negative": "-1\r\n", "junk": "zz\r\n"} {
		got := r.raw("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk + body)
		if answers(got) != 1 || strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("chunk %s: %s", name, got)
		}
	}
	if got := r.raw("POST /v1/completions HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); answers(got) != 1 || !strings.HasPrefix(got, "HTTP/1.1 400") {
		t.Errorf("HTTP/1.0 chunked: %s", got)
	}
	if n := len(r.fake.Records()); n != 0 {
		t.Errorf("the engine saw %d requests", n)
	}
	// What is left is read in one way: a length said twice is that length, and
	// a bare LF ends a line.
	for name, request := range map[string]string{
		"equal lengths": strings.Replace(rawPost("/v1/completions", body, "Connection: close"), "Content-Length", fmt.Sprintf("Content-Length: %d\r\nContent-Length", len(body)), 1),
		"bare LF":       strings.ReplaceAll(rawPost("/v1/completions", body, "Connection: close"), "\r\n", "\n"),
	} {
		got := r.raw(request + rawPost("/v1/completions", body))
		if answers(got) != 1 || !strings.HasPrefix(got, "HTTP/1.1 200") && !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%s: %s", name, got)
		}
	}
	// A chunked body that is well formed has one reading.
	got := r.raw(fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body))
	if !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("chunked body: %s", got)
	}
}

func TestExpectIsDecidedOnHeaders(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Limits: LimitsConfig{BodyBytesMax: 4096}}})
	head := "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
	got := r.raw(fmt.Sprintf(head, 20<<20))
	if !strings.HasPrefix(got, "HTTP/1.1 413") || answers(got) != 1 {
		t.Errorf("too large: %s", got)
	}
	if _, body, _ := strings.Cut(got, "\r\n\r\n"); body != "" {
		if code, _ := errorOf(t, body); code != "request_too_large" {
			t.Errorf("code %s", code)
		}
	}
	c := r.dial()
	defer c.Close()
	body := textBody("")
	fmt.Fprintf(c, head, len(body))
	br := bufio.NewReader(c)
	if line, err := readLine(br, "HTTP/1.1"); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("interim answer %q %v", line, err)
	}
	io.WriteString(c, body)
	if line, err := readLine(br, "HTTP/1.1"); err != nil || !strings.Contains(line, "200") {
		t.Errorf("final answer %q %v", line, err)
	}
	r.gw.StartDraining()
	if got := r.raw(fmt.Sprintf(head, 10)); !strings.HasPrefix(got, "HTTP/1.1 503") {
		t.Errorf("draining: %s", got)
	}
}

func TestNothingIsMisreadAfterARefusal(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Limits: LimitsConfig{BodyBytesMax: 2048}}})
	for i := range 1000 {
		size := rand.IntN(6000)
		first := rawPost("/v1/completions", strings.Repeat("x", size))
		cut := rand.IntN(len(first))
		c := r.dial()
		io.WriteString(c, first[:cut])
		if i%4 == 0 {
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		}
		io.WriteString(c, first[cut:]+"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		got, _ := io.ReadAll(c)
		c.Close()
		text := string(got)
		switch {
		case size > 2048 && (answers(text) != 1 || !strings.HasPrefix(text, "HTTP/1.1 413") || !strings.Contains(text, "Connection: close")):
			t.Fatalf("size %d: %s", size, text)
		case size <= 2048 && (answers(text) != 2 || !strings.HasPrefix(text, "HTTP/1.1 400") || !strings.Contains(text, `{"version":"test"}`)):
			t.Fatalf("size %d: %s", size, text)
		}
	}
}

func zipped(text []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(text)
	w.Close()
	return b.String()
}

func TestCompressedBodies(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Limits: LimitsConfig{BodyBytesMax: 1 << 20}}})
	if resp := r.do("POST", "/v1/completions", zipped([]byte(textBody(""))), "Content-Encoding", "gzip"); resp.status != 200 {
		t.Errorf("gzip: %d %s", resp.status, resp.body)
	}
	bomb := zipped(make([]byte, 32<<20))
	if resp := r.do("POST", "/v1/completions", bomb, "Content-Encoding", "gzip"); resp.status != 413 {
		t.Errorf("bomb of %d bytes: %d %s", len(bomb), resp.status, resp.body)
	}
	for _, coding := range []string{"zstd", "deflate", "br", "gzip, gzip"} {
		if resp := r.do("POST", "/v1/completions", textBody(""), "Content-Encoding", coding); resp.status != 415 || resp.header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("%s: %d %s", coding, resp.status, resp.body)
		}
	}
	if resp := r.do("POST", "/v1/completions", "junk", "Content-Encoding", "gzip"); resp.status != 400 {
		t.Errorf("broken gzip: %d", resp.status)
	}
}

func TestPreflight(t *testing.T) {
	off := simpleRig(t, hello)
	for _, path := range []string{"/v1/chat/completions", "/v1/models"} {
		resp := off.do("OPTIONS", path, "", "Origin", "http://a.test", "Access-Control-Request-Method", "POST")
		if resp.status != 405 || resp.header.Get("Allow") == "" || resp.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("off %s: %d %v", path, resp.status, resp.header)
		}
	}
	on := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{CORSOrigins: "http://a.test, http://b.test"}})
	for _, path := range []string{"/v1/chat/completions", "/v1/models"} {
		resp := on.do("OPTIONS", path, "", "Origin", "http://a.test", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
		if resp.status != 204 || resp.header.Get("Access-Control-Allow-Origin") != "http://a.test" || !strings.Contains(resp.header.Get("Access-Control-Allow-Headers"), "authorization") {
			t.Errorf("on %s: %d %v", path, resp.status, resp.header)
		}
		if resp := on.do("OPTIONS", path, "", "Origin", "http://evil.test"); resp.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("a foreign origin was allowed: %v", resp.header)
		}
	}
	for _, body := range []string{chatBody(""), chatBody(`"stream":true`), `{`} {
		if resp := on.do("POST", "/v1/chat/completions", body, "Origin", "http://a.test"); resp.header.Get("Access-Control-Allow-Origin") != "http://a.test" {
			t.Errorf("%s: %d %v", body, resp.status, resp.header)
		}
	}
}

func TestPathForms(t *testing.T) {
	r := simpleRig(t, hello)
	r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range []string{"/v1/chat/completions/", "//v1/chat/completions", "/v1/v1/chat/completions", "/v1/Chat/Completions", "/v1/x/../chat/completions", "/v1/chat%2fcompletions", "/"} {
		got := r.raw(rawPost(path, chatBody(""), "Connection: close"))
		if !strings.HasPrefix(got, "HTTP/1.1 404") || !strings.Contains(got, `"code":"unknown_url"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestHeaderLimit(t *testing.T) {
	r := simpleRig(t, hello)
	get := func(headers string) string {
		return r.raw("GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "\r\n")
	}
	for _, size := range []int{3 << 10, 8 << 10} {
		if got := get("X-Big: " + strings.Repeat("a", size) + "\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("%d bytes: %.80s", size, got)
		}
	}
	for _, size := range []int{64 << 10, 300 << 10} {
		got := get("Authorization: Bearer " + strings.Repeat("a", size) + "\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 431") || !strings.Contains(got, `"code":"header_too_large"`) {
			t.Errorf("%d bytes: %.300s", size, got)
		}
	}
	if got := get(strings.Repeat("X-A: b\r\n", 4000)); !strings.HasPrefix(got, "HTTP/1.1 431") {
		t.Errorf("4000 lines: %.300s", got)
	}
}

func TestHeadAndHTTP10(t *testing.T) {
	r := simpleRig(t, hello)
	for path, status := range map[string]string{"/healthz": "200", "/v1/models": "200", "/nothing": "404", "/v1/chat/completions": "405"} {
		got := r.raw("HEAD " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+status) || !strings.HasSuffix(got, "\r\n\r\n") || strings.Contains(got, "chunked") {
			t.Errorf("HEAD %s: %s", path, got)
		}
	}
	if got := r.raw("GET /healthz HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.HasSuffix(got, `{"status":"ok"}`) {
		t.Errorf("HTTP/1.0: %s", got)
	}
	twice := r.raw("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n")
	if answers(twice) != 2 {
		t.Errorf("HTTP/1.0 keep-alive: %s", twice)
	}
	stream := r.raw(strings.Replace(rawPost("/v1/chat/completions", chatBody(`"stream":true`)), "HTTP/1.1", "HTTP/1.0", 1))
	if strings.Contains(stream, "hunked") || !strings.HasSuffix(stream, "data: [DONE]\n\n") || !strings.Contains(stream, "Connection: close") {
		t.Errorf("HTTP/1.0 stream: %s", stream)
	}
}

func TestSlowRequestsAreCut(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Timeouts: TimeoutConfig{HeaderLimit: 200 * time.Millisecond, BodyLimit: 300 * time.Millisecond}}})
	for name, head := range map[string]string{
		"header": "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"body":   "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
	} {
		c := r.dial()
		io.WriteString(c, head)
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					io.WriteString(c, "a")
				}
			}
		}()
		got, err := io.ReadAll(c)
		close(stop)
		<-done
		c.Close()
		if len(got) > 0 && !strings.HasPrefix(string(got), "HTTP/1.1 408") || len(got) == 0 && err == nil {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}

func TestWrongRequests(t *testing.T) {
	r := simpleRig(t, hello)
	for _, c := range []struct {
		name, method, path, body, contentType string
		status                                int
		code, param                           string
	}{
		{"unknown model", "POST", "/v1/chat/completions", strings.Replace(chatBody(""), "fake", "other", 1), "application/json", 404, "model_not_found", "model"},
		{"not JSON", "POST", "/v1/chat/completions", "hello", "application/json", 400, "invalid_value", ""},
		{"truncated", "POST", "/v1/chat/completions", `{"model":"fake"`, "application/json", 400, "invalid_value", ""},
		{"not an object", "POST", "/v1/chat/completions", `[1]`, "application/json", 400, "invalid_value", ""},
		{"empty object", "POST", "/v1/chat/completions", `{}`, "application/json", 400, "invalid_value", "model"},
		{"no messages", "POST", "/v1/chat/completions", `{"model":"fake","messages":[]}`, "application/json", 400, "invalid_value", "messages"},
		{"no prompt", "POST", "/v1/completions", `{"model":"fake"}`, "application/json", 400, "invalid_value", "prompt"},
		{"empty body", "POST", "/v1/chat/completions", "", "application/json", 400, "invalid_value", ""},
		{"content type", "POST", "/v1/chat/completions", chatBody(""), "text/plain", 415, "unsupported_media_type", ""},
		{"method", "PUT", "/v1/chat/completions", "", "", 405, "method_not_allowed", ""},
		{"unknown path", "GET", "/v2/models", "", "", 404, "unknown_url", ""},
		{"unknown model object", "GET", "/v1/models/other", "", "", 404, "model_not_found", "model"},
	} {
		resp := r.do(c.method, c.path, c.body, "Content-Type", c.contentType)
		if resp.status != c.status {
			t.Errorf("%s: status %d, body %s", c.name, resp.status, resp.body)
			continue
		}
		if code, param := errorOf(t, resp.body); code != c.code || param != c.param {
			t.Errorf("%s: code %q param %q in %s", c.name, code, param, resp.body)
		}
		if resp.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: no x-request-id", c.name)
		}
		if c.status == 405 && resp.header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", c.name)
		}
	}
}

func TestModelsAndStatus(t *testing.T) {
	r := simpleRig(t, hello)
	list := object(t, r.do("GET", "/v1/models", "").body)
	first := list["data"].([]any)[0].(map[string]any)
	if list["object"] != "list" || first["id"] != "fake" || first["object"] != "model" || first["created"] == nil || first["owned_by"] == nil {
		t.Errorf("models %v", list)
	}
	if resp := r.do("GET", "/v1/models/fake", ""); resp.status != 200 || object(t, resp.body)["id"] != "fake" {
		t.Errorf("model: %d %s", resp.status, resp.body)
	}
	if resp := r.do("GET", "/version", ""); resp.body != `{"version":"test"}` {
		t.Errorf("version %s", resp.body)
	}
	if resp := r.do("GET", "/readyz", ""); resp.status != 200 {
		t.Errorf("ready: %d %s", resp.status, resp.body)
	}
}

func TestClientIDsAreOnlyEchoed(t *testing.T) {
	r := simpleRig(t, hello)
	for range 2 {
		if resp := r.do("POST", "/v1/chat/completions", chatBody(""), "X-Request-Id", "order#7"); resp.header.Get("X-Request-Id") != "order#7" {
			t.Errorf("id %q", resp.header.Get("X-Request-Id"))
		}
	}
	for _, bad := range []string{strings.Repeat("a", 300), `a"b`, "a b"} {
		if resp := r.do("POST", "/v1/chat/completions", chatBody(""), "X-Request-Id", bad); resp.header.Get("X-Request-Id") == bad || resp.header.Get("X-Request-Id") == "" {
			t.Errorf("id %q was echoed", bad)
		}
	}
	seen := map[string]bool{}
	for _, rec := range r.fake.Records() {
		if seen[rec.ID] || strings.Contains(rec.ID, "order") {
			t.Errorf("the engine saw %q", rec.ID)
		}
		seen[rec.ID] = true
	}
	if len(seen) != 5 {
		t.Errorf("the engine saw %d ids", len(seen))
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Limits: LimitsConfig{ConnectionsMax: 2}}})
	get := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	for range 2 {
		c := r.dial()
		defer c.Close()
		io.WriteString(c, get)
		if line, err := readLine(bufio.NewReader(c), "HTTP/1.1"); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("%q %v", line, err)
		}
	}
	// Each has sent a request that nobody reads, which must not cost the answer.
	for range 20 {
		got := r.raw(rawPost("/v1/completions", strings.Repeat("x", 100_000)))
		_, body, _ := strings.Cut(got, "\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 503") || !strings.Contains(got, "\r\n"+requestIDHeader+": ") || !strings.Contains(got, "\r\nRetry-After: 1\r\n") || strings.Contains(got, "<") {
			t.Fatalf("over the limit: %s", got)
		}
		if code, _ := errorOf(t, body); code != "too_many_connections" {
			t.Errorf("code %s", code)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, bad := range []Config{{Limits: LimitsConfig{ChoicesMax: 129}}, {Limits: LimitsConfig{HeaderBytesMax: 5}}, {Timeouts: TimeoutConfig{KeepAlive: -1}}, {CORSOrigins: "https://a.test/"}, {CORSOrigins: "https://a.test, b.test"}} {
		if _, err := New(bad, Parts{}); err == nil || !strings.Contains(err.Error(), "gateway.") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
