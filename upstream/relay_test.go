package upstream

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestWhatIsSent: the client's own members go on, ours replace what is ours, and what
// a client must not choose is left out.
func TestWhatIsSent(t *testing.T) {
	p := newPeer(t, events(deltaChunk(`{"role":"assistant","content":"Hi"}`, ""), deltaChunk(`{}`, "stop"), usageChunk(9, 1), "[DONE]"))
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := open(t, Config{URL: p.URL + "/v1/", KeyFile: key})
	got := chat(t, e, `"max_completion_tokens":50,"stream":false,"top_k":7,"grammar":"root","priority":-5,"cache_salt":"x","seed":3,"n":1,"é":"\u2028"`, wire.Options{MaxTokens: 20, Seed: 3})
	if got.texts[0] != "Hi" || got.finishes[0] != wire.FinishStop || got.end.Err != nil || got.end.Usage != (wire.Usage{Prompt: 9, Computed: 9, Completion: 1}) {
		t.Fatalf("%+v, end %+v", got, got.end)
	}
	body, header := p.last()
	want := map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true}, "max_completion_tokens": 20., "top_k": 7., "grammar": "root", "seed": 3., "é": "\u2028",
		"messages": []any{map[string]any{"role": "user", "content": "hello"}},
	}
	if fmt.Sprint(body) != fmt.Sprint(want) {
		t.Errorf("sent %v\nwant %v", body, want)
	}
	if header.Get("Authorization") != "Bearer sesame" || header.Get("X-Request-Id") != "request-1" {
		t.Errorf("headers %v", header)
	}
	// The key is read again.
	if err := os.WriteFile(key, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new key is sent", func() bool {
		chat(t, e, "", wire.Options{})
		_, header := p.last()
		return header.Get("Authorization") == "Bearer other"
	})
	if body, _ := p.last(); body["max_tokens"] != nil {
		t.Errorf("a limit of %v was sent that nobody asked for", body["max_tokens"])
	}
}

// TestDeltas: what a delta holds beside its text is passed on, in one line and with
// its own order; roles and nulls are not.
func TestDeltas(t *testing.T) {
	p := newPeer(t, events(
		deltaChunk(`{"role":"assistant","content":null,"reasoning_content":"hm\u2028m"}`, ""),
		deltaChunk(`{"tool_calls":[ {"index":0,"id":"a", "type":"function","function":{"name":"f","arguments":""}}]}`, ""),
		deltaChunk(`{"content":"x","tool_calls":[{"index":0,"function":{"arguments":"{}"}}],"refusal":null}`, "tool_calls"),
		"[DONE]"))
	got := chat(t, open(t, Config{URL: p.URL}), "", wire.Options{})
	want := `"reasoning_content":"hm\u2028m" "tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}] "tool_calls":[{"index":0,"function":{"arguments":"{}"}}]`
	if got.deltas != want || got.texts[0] != "x" || got.finishes[0] != wire.FinishCalls || got.end.Err != nil {
		t.Errorf("%s\nwant %s\n%+v", got.deltas, want, got)
	}
}

// TestLimits: a server that says nothing, or too much, ends its request alone.
func TestLimits(t *testing.T) {
	hang := func(before ...string) func(http.ResponseWriter, *http.Request, map[string]any) {
		return func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			events(before...)(w, r, nil)
			<-r.Context().Done()
		}
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request, map[string]any)
		kind   wire.Kind
		says   string
	}{
		"no first event":     {hang(), wire.Unavailable, "first_token_limit"},
		"silence":            {hang(textChunk(0, "Hi", "")), wire.Unavailable, "silence_limit"},
		"a giant event":      {events(textChunk(0, strings.Repeat("x", 3000), "stop")), wire.Internal, "event_bytes_max"},
		"an event of no end": {events(": " + strings.Repeat("\ndata: 12345678", 500)), wire.Internal, "event_bytes_max"},
		"a giant whole": {func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, strings.Repeat("x", 5000))
		}, wire.Internal, "event_bytes_max"},
		"a giant bad request": {func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			w.WriteHeader(400)
			fmt.Fprint(w, strings.Repeat("x", 5000))
		}, wire.Invalid, "xxx…"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, c.answer)
			e := open(t, Config{URL: p.URL, EventBytesMax: 2048, MessageBytesMax: 1024, FirstTokenLimit: 300 * time.Millisecond, SilenceLimit: 200 * time.Millisecond})
			defer e.Close()
			got := chat(t, e, "", wire.Options{})
			if err := got.end.Err; err == nil || err.Kind != c.kind || !strings.Contains(err.Message, c.says) || len(err.Message) > 2*textMax {
				t.Errorf("ended with %v; want kind %v that says %q", err, c.kind, c.says)
			}
		})
	}
}

// TestTransports: a server on a Unix socket, and one behind TLS whose certificate our
// own file vouches for.
func TestTransports(t *testing.T) {
	plain := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	path := filepath.Join(t.TempDir(), "s.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	socket := &httptest.Server{Listener: ln, Config: &http.Server{Handler: plain}}
	socket.Start()
	defer socket.Close()
	secure := httptest.NewTLSServer(plain)
	defer secure.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{URL: "unix:" + path}, {URL: secure.URL, CAFile: ca}} {
		e := open(t, cfg)
		if got := chat(t, e, "", wire.Options{}); got.texts[0] != "Hi" || got.end.Err != nil {
			t.Errorf("%s: %+v, %v", cfg.URL, got, got.end.Err)
		}
		e.Close()
		to, err := newServer(&e.cfg, "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			r, _ := to.request(context.Background(), "GET", "/v1/models", nil)
			answer, reused, err := to.client.do(r)
			if err != nil || reused != (i > 0) {
				t.Fatalf("%s: request %d, on a connection that was used before %v: %v", cfg.URL, i, reused, err)
			}
			io.Copy(io.Discard, answer.Body)
		}
		to.client.close()
	}
	e, err := New(Config{URL: secure.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if e.WaitReady(ctx) == nil {
		t.Error("a certificate that nobody vouches for is taken")
	}
}

func TestAddresses(t *testing.T) {
	for url, want := range map[string]string{
		"": "", "http://h:1": "", "https://h/p": "", "unix:/s": "", "unix:///s": "",
		"h:1": "is not an address", "unix:s": "whole path", "ftp://h": "is not an address", "http://u:secret@h": "key_file", "http://h/?a=b": "end with its path",
	} {
		err := (&Config{URL: url}).Mistakes()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
	}
}

// TestComesBack: a server that goes away makes the engine unready, and one that comes
// back makes it ready, with its new model.
func TestComesBack(t *testing.T) {
	p := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	e := open(t, Config{URL: p.URL})
	if id := e.State().Model.ID; id != "m" {
		t.Errorf("model %q", id)
	}
	p.models = strings.ReplaceAll(oneModel, `"m"`, `"/models/other.gguf"`)
	e.replicas[0].lose()
	if _, err := e.Prepare(context.Background(), &wire.Request{}); wire.AsError(err).Kind != wire.Unavailable || wire.AsError(err).RetryAfter == 0 {
		t.Errorf("without a server: %v", err)
	}
	eventually(t, "it is back", func() bool { return e.State().Err == nil })
	if id := e.State().Model.ID; id != "other" {
		t.Errorf("model %q", id)
	}
	p.CloseClientConnections()
	p.Close()
	eventually(t, "it is lost", func() bool { return e.State().Err != nil })
}

// TestCounts: the server is asked until its answers have taught how to estimate, and
// for long prompts always.
func TestCounts(t *testing.T) {
	asked := 0
	p := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), usageChunk(40, 1), "[DONE]"))
	p.models = strings.ReplaceAll(oneModel, "someone", "vllm")
	p.pages["/health"] = ""
	p.pages["/version"] = `{"version":"0.33.0"}`
	inner := p.Config.Handler
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tokenize" {
			var body map[string]any
			if json.NewDecoder(r.Body).Decode(&body); body["model"] == "m" && (body["messages"] != nil || body["prompt"] != nil) {
				asked++
				fmt.Fprint(w, `{"count":40,"max_model_len":1024}`)
			}
			return
		}
		inner.ServeHTTP(w, r)
	})
	e := open(t, Config{URL: p.URL})
	if e.Name() != "vllm 0.33.0" {
		t.Errorf("found %s", e.Name())
	}
	text := "What is the capital of the land of " + strings.Repeat("milk and honey ", 8)
	prepare := func(text string) *wire.Prompt {
		q, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	for range ratioSure {
		q := prepare(text)
		if q.Length() != 40 {
			t.Errorf("%d tokens, and the server counts 40", q.Length())
		}
		generate(t, e, q, wire.Options{})
	}
	before := asked
	if q := prepare(text); q.Length() < 39 || q.Length() > 42 || asked != before {
		t.Errorf("%d tokens where 40 were learned, and the server was asked %d times", q.Length(), asked-before)
	}
	if prepare(strings.Repeat(text, 40)); asked != before+1 {
		t.Error("the server was not asked for a long prompt")
	}
}

// TestPreparedAtOnce: a short prompt that nobody is asked to count is prepared where it
// is, and any other is not.
func TestPreparedAtOnce(t *testing.T) {
	p := newPeer(t, events("[DONE]"))
	e := open(t, Config{URL: p.URL, CountBytesMin: 1000})
	now := func(text string) (*wire.Prompt, bool) {
		messages, _ := json.Marshal([]map[string]string{{"role": "user", "content": text}})
		got, err, ok := e.PrepareNow(&wire.Request{ID: "1", Messages: messages, Body: append(append([]byte(`{"messages":`), messages...), '}')})
		if ok && err != nil {
			t.Fatal(err)
		}
		return got, ok
	}
	short, long, longest := "hello", strings.Repeat("hello ", 200), strings.Repeat("hello ", 4000)
	for _, c := range []struct {
		text string
		asks bool // the server can count
		sure bool
		want bool
	}{{short, false, false, true}, {long, false, false, true}, {longest, false, true, false}, {short, true, false, false}, {short, true, true, true}, {long, true, true, false}} {
		e.mu.Lock()
		d := *generic
		if c.asks {
			d.countChat = "/tokenize"
		}
		m := *e.replicas[0].model
		m.dialect, e.replicas[0].model = &d, &m
		e.mu.Unlock()
		if e.counts.learned = 0; c.sure {
			e.counts.learned = ratioSure
		}
		if got, ok := now(c.text); ok != c.want || ok && got.Length() < 1 {
			t.Errorf("%d bytes, asks %v, sure %v: prepared %v", len(c.text), c.asks, c.sure, ok)
		}
	}
	if _, err, ok := e.PrepareNow(&wire.Request{ID: "1", Messages: []byte(" [ ] ")}); !ok || err == nil {
		t.Errorf("no messages: %v, %v", err, ok)
	}
}

// TestTimingsOfLlamaServer: what it says of a prompt divides the time until the first
// token, and tells what an answer that was cut has cost.
func TestTimingsOfLlamaServer(t *testing.T) {
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		time.Sleep(30 * time.Millisecond)
		events(`{"choices":[{"index":0,"delta":{"content":"Hi"}}],"timings":{"cache_n":16,"prompt_n":5,"prompt_ms":10.0,"predicted_n":3}}`)(w, r, nil)
	})
	p.models = strings.ReplaceAll(oneModel, "someone", "llamacpp")
	p.pages["/health"] = ""
	got := chat(t, open(t, Config{URL: p.URL}), "", wire.Options{})
	at := got.end.Timings
	if prefill, before := time.Duration(at.FirstToken-at.Scheduled), time.Duration(at.Scheduled-at.Received); prefill != 10*time.Millisecond || before < 15*time.Millisecond {
		t.Errorf("%v before the prefill and %v in it", before, prefill)
	}
	if got.end.Err == nil || got.end.Usage != (wire.Usage{Prompt: 21, Cached: 16, Computed: 5, Completion: 3}) {
		t.Errorf("usage %+v, %v", got.end.Usage, got.end.Err)
	}
}

// TestLimitOfTokens: what was asked for is sent also where an estimate says that the
// context is full, and a server that goes on after it is cut.
func TestLimitOfTokens(t *testing.T) {
	p := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	p.models = `{"data":[{"id":"m"}]}` // its context is not known
	e := open(t, Config{URL: p.URL})
	text := strings.Repeat("many words ", 8000)
	messages, _ := json.Marshal([]map[string]string{{"role": "user", "content": text}})
	prompt, err := e.Prepare(context.Background(), &wire.Request{Messages: messages, Body: json.RawMessage(`{"max_tokens":500,"messages":` + string(messages) + `}`)})
	if err != nil || prompt.Length() < contextUnknown || prompt.Room < 500 {
		t.Fatalf("%d tokens with room for %d: %v", prompt.Length(), prompt.Room, err)
	}
	generate(t, e, prompt, wire.Options{MaxTokens: 500})
	if body, _ := p.last(); body["max_tokens"] != 500. {
		t.Errorf("sent a limit of %v", body["max_tokens"])
	}
	p.answer = func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		body["max_tokens"] = 1e9
		generates(0)(w, r, body)
	}
	if got := chat(t, e, `"max_tokens":5`, wire.Options{MaxTokens: 5}); got.end.Err == nil || !strings.Contains(got.end.Err.Message, "its limit is 5") || got.end.Usage.Completion > 100 {
		t.Errorf("a server that knows no limit: %v, %+v", got.end.Err, got.end.Usage)
	}
}
