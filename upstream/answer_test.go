package upstream

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestAnswersThatAreNotWhole: none of them becomes a complete answer, and none hides
// why.
func TestAnswersThatAreNotWhole(t *testing.T) {
	text := textChunk(0, "Hi", "")
	fail := func(status int, body string) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "http://127.0.0.1:1/v1/completions")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, map[string]any)
		kind   wire.Kind
		says   string
	}{
		"no reason, then DONE":     {events(text, "[DONE]"), wire.Internal, "without the reason"},
		"no reason, then the end":  {events(text), wire.Internal, "before it was whole"},
		"nothing":                  {events(), wire.Internal, "before it was whole"},
		"an abort":                 {events(text, textChunk(0, "", "abort"), usageChunk(1, 1), "[DONE]"), wire.Internal, "abort"},
		"an unknown reason":        {events(text, textChunk(0, "", "cosmic ray"), "[DONE]"), wire.Internal, "cosmic ray"},
		"an error object":          {events(text, `{"error":{"message":"boom","code":500}}`, "[DONE]"), wire.Internal, "boom"},
		"an error text":            {events(text, `{"error":"boom"}`, "[DONE]"), wire.Internal, "boom"},
		"an error as an object":    {events(text, `{"object":"error","message":"boom"}`, "[DONE]"), wire.Internal, "boom"},
		"an error that is no JSON": {events(text, `{"error": "it said "no""}`), wire.Internal, `it said "no"`},
		"an error in a 200":        {fail(200, `{"error":{"message":"boom"}}`), wire.Internal, "before it was whole"},
		"a page":                   {fail(200, "<html>\nlogin</html>"), wire.Internal, "before it was whole"},
		"a choice that is not":     {events(textChunk(3, "x", "")), wire.Internal, "choice 3 of 1"},
		"a mad usage":              {events(text, `{"choices":[],"usage":{"completion_tokens":-3}}`), wire.Internal, "-3 tokens"},
		"a bad request":            {fail(400, `{"error":{"message":"top_k is odd","param":"top_k","code":400}}`), wire.Invalid, "top_k is odd"},
		"another bad request":      {fail(422, `{"detail":[{"msg":"n"}]}`), wire.Invalid, `[{"msg":"n"}]`},
		"a long prompt":            {fail(400, `{"error":{"message":"This model's maximum context length is 4 tokens"}}`), wire.ContextLength, "maximum context"},
		"too large":                {fail(413, "big"), wire.TooLarge, "big"},
		"a wrong key":              {fail(401, "key k-123"), wire.Unavailable, "upstream.key_file"},
		"no such model":            {fail(404, "no"), wire.Unavailable, "route or model"},
		"busy":                     {fail(429, "x"), wire.Overloaded, "no more requests"},
		"down":                     {fail(503, "x"), wire.Overloaded, "no more requests"},
		"a proxy":                  {fail(502, "x"), wire.Unavailable, "502"},
		"a redirect":               {fail(307, ""), wire.Unavailable, "another address"},
		"a failure":                {fail(500, `{"error":{"message":"CUDA"}}`), wire.Internal, "CUDA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, c.answer)
			e := open(t, Config{URL: p.URL})
			text := "hello"
			prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
			if err != nil {
				t.Fatal(err)
			}
			got := generate(t, e, prompt, wire.Options{})
			if e := got.end.Err; e == nil || e.Kind != c.kind || !strings.Contains(e.Message, c.says) || got.finishes[0] != wire.FinishNone {
				t.Errorf("ended with %v and %v; want kind %v that says %q", e, got.finishes, c.kind, c.says)
			} else if e.Kind == wire.Overloaded && e.RetryAfter != 7*time.Second {
				t.Errorf("try again after %v", e.RetryAfter)
			}
			eventually(t, "its place is free", func() bool { s := e.State(); return s.Sequences == 0 && s.ShortPrefill == 0 && s.Places <= 4 })
		})
	}
}

// rawPeer answers every generation with bytes of its own, and then closes the
// connection.
func rawPeer(t *testing.T, answer func() string) (address string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				from := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					if r.URL.Path == "/v1/models" {
						fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(oneModel), oneModel)
						continue
					}
					fmt.Fprint(c, answer())
					return
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

// TestCutAtEveryByte: an answer that breaks off anywhere is an error, unless all of
// its text and its reason had come. Its place is given back every time.
func TestCutAtEveryByte(t *testing.T) {
	var body strings.Builder
	for _, e := range []string{deltaChunk(`{"role":"assistant","content":"ü"}`, ""), deltaChunk(`{"content":"\n42"}`, ""), deltaChunk(`{}`, "stop"), usageChunk(3, 2), "[DONE]"} {
		line := "data: " + e + "\r\n\r\n"
		fmt.Fprintf(&body, "%x\r\n%s\r\n", len(line), line)
	}
	whole := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + body.String() + "0\r\n\r\n"
	reason := strings.Index(whole, `"stop"}]}`) + len(`"stop"}]}`) + len("\r\n\r\n") // the event with the reason is whole
	counted := strings.Index(whole, `"completion_tokens":2}}`) + len(`"completion_tokens":2}}`) + len("\r\n\r\n")
	at := 0
	e := open(t, Config{URL: rawPeer(t, func() string { return whole[:at] }), CheckInterval: 4 * time.Second})
	for at = range len(whole) + 1 {
		got := chat(t, e, "", wire.Options{})
		if at < reason-2 {
			if got.end.Err == nil || got.finishes[0] != wire.FinishNone {
				t.Fatalf("cut at byte %d of %d (%q): %+v", at, len(whole), whole[max(0, at-30):at], got)
			}
		} else if at >= reason && (got.end.Err != nil || got.texts[0] != "ü\n42" || got.finishes[0] != wire.FinishStop || got.tokens != 2) {
			t.Fatalf("cut at byte %d, after its reason: %+v, %v", at, got, got.end.Err)
		}
		if at >= counted && got.end.Usage != (wire.Usage{Prompt: 3, Computed: 3, Completion: 2}) {
			t.Fatalf("cut at byte %d, after its usage: %+v", at, got.end.Usage)
		}
		if s := e.State(); s.Sequences != 0 || s.ShortPrefill != 0 || e.replicas[0].ledger.live != 0 || e.replicas[0].ledger.started != 0 {
			t.Fatalf("cut at byte %d: %+v", at, s.Load)
		}
	}
}

// TestCancelCloses: a closed stream closes its connection, and keeps its place until
// the server may have noticed.
func TestCancelCloses(t *testing.T) {
	p := newPeer(t, generates(time.Millisecond))
	e := open(t, Config{URL: p.URL, SequencesMax: 3, CheckInterval: 4 * time.Second})
	text := "hello"
	prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
	if err != nil {
		t.Fatal(err)
	}
	notify := make(chan struct{}, 1)
	s := e.Generate(&wire.Generation{ID: "1", Prompt: prompt, Options: wire.Options{N: 2}, Notify: notify})
	<-notify
	s.Close()
	eventually(t, "the server has lost its client", func() bool { return p.inside.Load() == 0 })
	eventually(t, "it is not read any more", func() bool { return e.State().Sequences == 0 })
	if places := e.State().Places; places != 1 {
		t.Errorf("%d places of 3 while 2 sequences may still run there", places)
	}
	e.mu.Lock()
	e.replicas[0].ledger.lingering[0].until = 0
	e.mu.Unlock()
	e.tick()
	if places := e.State().Places; places != 3 {
		t.Errorf("%d places of 3 after that", places)
	}
}

// TestAnswerThatIsNotStreamed: a server that cannot stream is relayed all the same.
func TestAnswerThatIsNotStreamed(t *testing.T) {
	p := newPeer(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi","tool_calls":[]},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`)
	})
	got := chat(t, open(t, Config{URL: p.URL}), "", wire.Options{})
	if got.end.Err != nil || got.texts[0] != "Hi" || got.deltas != "" || got.end.Usage.Prompt != 3 {
		t.Errorf("%+v, %v", got, got.end.Err)
	}
}
