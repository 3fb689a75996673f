package upstream

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

func listOf(owner string) string { return strings.ReplaceAll(oneModel, "someone", owner) }

// TestPublicBugs plays what public bug reports say that servers do. Each has one
// outcome, the same in both modes of relaying, and gives its place back. The reports are
// named by their repositories.
func TestPublicBugs(t *testing.T) {
	hi, stop := deltaChunk(`{"role":"assistant","content":"Hi"}`, ""), deltaChunk(`{}`, "stop")
	type want struct {
		kind   wire.Kind // of the error; none where text is set
		text   string
		deltas string
		finish wire.Finish
		usage  int // tokens made
	}
	for name, c := range map[string]struct {
		owner  string
		answer func(http.ResponseWriter, *http.Request, map[string]any)
		max    int
		want   want
	}{
		"vllm-project/vllm#57082: an abort ends as 200 with DONE": {"vllm", events(hi, deltaChunk(`{}`, "abort"), usageChunk(3, 1), "[DONE]"), 0, want{kind: wire.Internal}},
		"vllm-project/vllm#55634: usage without what was relayed": {"vllm", events(hi, hi, stop, usageChunk(3, 0), "[DONE]"), 0, want{text: "HiHi", finish: wire.FinishStop, usage: 0}},
		"vllm-project/vllm#27572: no reason at the end":           {"vllm", events(hi, usageChunk(3, 1), "[DONE]"), 9, want{text: "Hi", finish: wire.FinishStop, usage: 1}},
		"the same, at the limit":                                  {"vllm", events(hi, usageChunk(3, 9), "[DONE]"), 9, want{text: "Hi", finish: wire.FinishLength, usage: 9}},
		"vllm-project/vllm#44098: the last part names the call again": {"vllm", events(
			deltaChunk(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}}]}`, ""),
			deltaChunk(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"}"}}]}`, "tool_calls"), "[DONE]"), 0,
			want{deltas: `"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{"}}] "tool_calls":[{"index":0,"function":{"arguments":"}"}}]`, finish: wire.FinishCalls, usage: 2}},
		"vllm-project/vllm#35705: text and reason in one event":   {"vllm", events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"), 0, want{text: "Hi", finish: wire.FinishStop, usage: 1}},
		"vllm-project/vllm#44377: cached_tokens is null":          {"vllm", events(hi, stop, `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":null}}}`, "[DONE]"), 0, want{text: "Hi", finish: wire.FinishStop, usage: 1}},
		"can1357/oh-my-pi#5022: two usages, the last counts":      {"x", events(hi, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`, usageChunk(3, 7), "[DONE]"), 0, want{text: "Hi", finish: wire.FinishStop, usage: 7}},
		"sgl-project/sglang#3912: the reason is empty throughout": {"sglang", events(deltaChunk(`{"content":"Hi"}`, ""), `{"choices":[{"index":0,"delta":{},"finish_reason":""}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`, "[DONE]"), 0, want{text: "Hi", finish: wire.FinishStop, usage: 1}},
		"sgl-project/sglang#2956: an error as an event of a 200":  {"sglang", events(hi, `{"object":"error","message":"out of memory","code":500}`, "[DONE]"), 0, want{kind: wire.Internal}},
		"ggml-org/llama.cpp#15713: the parser of calls throws":    {"llamacpp", events(hi, `{"error":{"code":500,"message":"Invalid diff","type":"server_error"}}`), 0, want{kind: wire.Internal}},
		"ollama/ollama#4357: the reason is empty in every event":  {"library", events(deltaChunk(`{"content":"Hi"}`, ""), `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":""}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`, "[DONE]"), 0, want{text: "Hi", finish: wire.FinishStop, usage: 1}},
		"BerriAI/litellm#37792: all calls are 0, arguments an object": {"library", events(
			deltaChunk(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":{"x":1}}},{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}`, "tool_calls"), "[DONE]"), 0,
			want{deltas: `"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]`, finish: wire.FinishCalls, usage: 1}},
		"huggingface/text-generation-inference#2336: no usage, no DONE": {"tgi", events(hi, deltaChunk(`{}`, "eos_token")), 0, want{text: "Hi", finish: wire.FinishStop, usage: 1}},
		"transformers serve: usage with the reason, no DONE":            {"x", events(hi, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`), 0, want{text: "Hi", finish: wire.FinishStop, usage: 2}},
		"transformers serve: an error that breaks its JSON":             {"x", events(hi, `{"error": "bad "quotes" here"}`), 0, want{kind: wire.Internal}},
		"groq, LM Studio: 200 and then an error":                        {"x", events(`{"error":{"message":"no credit"}}`), 0, want{kind: wire.Internal}},
		"openai/openai-openapi#539: cut, so without usage":              {"x", events(hi, hi), 0, want{kind: wire.Internal, usage: 2}},
		"BerriAI/litellm#18842: a character cut between packets": {"x", func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w)
			for _, b := range []byte("data: " + deltaChunk(`{"content":"H\u00ef\ud83d\ude00日"}`, "stop") + "\n\n") {
				w.Write([]byte{b})
				w.(http.Flusher).Flush()
			}
			io.WriteString(w, "data: [DONE]\n\n")
		}, 0, want{text: "Hï😀日", finish: wire.FinishStop, usage: 1}},
		"ai-dynamo/dynamo#4723: a call without an index": {"nvidia", events(deltaChunk(`{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`, "tool_calls"), "[DONE]"), 0,
			want{deltas: `"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`, finish: wire.FinishCalls, usage: 1}},
		"openvinotoolkit/model_server: no id anywhere, cancelled": {"OVMS", events(hi, deltaChunk(`{}`, "cancelled"), "[DONE]"), 0, want{kind: wire.Internal}},
		"comments and unknown fields between events": {"llamacpp", func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
			stream(w)
			fmt.Fprintf(w, ":\n\n: ping\n\nid: 7\nretry: 10\nevent: message\ndata:%s\n\ndata: %s\r\n\r\ndata: [DONE]\n\n", hi, stop)
		}, 0, want{text: "Hi", finish: wire.FinishStop, usage: 1}},
	} {
		inMode := func(t *testing.T, relay string) {
			t.Parallel()
			p := newPeer(t, c.answer)
			p.models = listOf(c.owner)
			p.pages["/health"], p.pages["/api/version"] = "{}", `{"version":"1"}`
			e := open(t, Config{URL: p.URL, Relay: relay})
			defer e.Close()
			got := chat(t, e, "", wire.Options{MaxTokens: c.max})
			end := got.end
			switch ended := strings.Contains(strings.Join(got.lines, ""), `"finish_reason":"stop"`); {
			case relay == relayExact && end.Err != nil && ended:
				t.Errorf("the end of a broken answer was passed on: %q", got.lines)
			case relay == "" && len(got.lines) > 0:
				t.Errorf("passed on: %q", got.lines)
			case c.want.finish == wire.FinishNone && (end.Err == nil || end.Err.Kind != c.want.kind):
				t.Errorf("ended with %v, want kind %v", end.Err, c.want.kind)
			case c.want.finish != wire.FinishNone && (end.Err != nil || got.texts[0] != c.want.text || got.deltas != c.want.deltas || got.finishes[0] != c.want.finish):
				t.Errorf("%+v, ended with %v\nwant %+v", got, end.Err, c.want)
			case c.want.usage > 0 && end.Usage.Completion != c.want.usage:
				t.Errorf("usage %+v, want %d", end.Usage, c.want.usage)
			}
			if s := e.State(); s.Sequences != 0 || s.ShortPrefill != 0 {
				t.Errorf("after the end: %+v", s.Load)
			}
		}
		t.Run(name, func(t *testing.T) { inMode(t, "") })
		t.Run(name+", exact", func(t *testing.T) { inMode(t, relayExact) })
	}
}

// TestRefusedAndAgain: what says nothing about the request is tried again before the
// first byte, within a budget; sgl-project/sglang#17031 and busy servers.
func TestRefusedAndAgain(t *testing.T) {
	var tries atomic.Int32
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		switch tries.Add(1) {
		case 1:
			http.Error(w, `{"error":{"message":"Request is disconnected from the client side"}}`, http.StatusInternalServerError)
		case 2:
			http.Error(w, "server busy", http.StatusServiceUnavailable)
		default:
			events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]")(w, r, nil)
		}
	})
	e := open(t, Config{URL: p.URL})
	if got := chat(t, e, "", wire.Options{}); got.end.Err != nil || got.texts[0] != "Hi" || tries.Load() != 3 {
		t.Errorf("%+v, %v after %d tries", got, got.end.Err, tries.Load())
	}
	p.answer = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		tries.Add(1)
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}
	tries.Store(0)
	for range 12 {
		if got := chat(t, e, "", wire.Options{}); got.end.Err == nil || got.end.Err.Kind != wire.Overloaded {
			t.Fatalf("ended with %v", got.end.Err)
		}
	}
	if n := tries.Load(); n > 12+4 {
		t.Errorf("12 requests were sent %d times to a server that is busy", n)
	}
}

// TestIdleConnectionDies: llm-d/llm-d#1564, a connection that the server closes while
// it is idle costs a request nothing.
//
// Case C22.
func TestIdleConnectionDies(t *testing.T) {
	p := &peer{models: oneModel, pages: map[string]string{}, answer: events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]")}
	p.Server = httptest.NewUnstartedServer(p)
	t.Cleanup(p.Close)
	p.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateIdle {
			c.Close()
		}
	}
	p.Start()
	e := open(t, Config{URL: p.URL, CheckInterval: 4 * time.Second})
	for range 20 {
		if got := chat(t, e, "", wire.Options{}); got.end.Err != nil {
			t.Fatal(got.end.Err)
		}
	}
}

// TestAborts: sgl-project/sglang#37833 and #39461. A closed connection is not enough:
// the request is ended by its name, and no name begins with another.
func TestAborts(t *testing.T) {
	var aborted atomic.Value
	p := newPeer(t, generates(time.Millisecond))
	p.models = listOf("sglang")
	p.pages["/server_info"] = `{"version":"0.5.23","max_running_requests":17}`
	inner := p.Config.Handler
	p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort_request" {
			body, _ := io.ReadAll(r.Body)
			aborted.Store(string(body))
			return
		}
		inner.ServeHTTP(w, r)
	})
	e := open(t, Config{URL: p.URL, Priority: true})
	if s := e.State(); s.Places != 17 || e.Name() != "sglang 0.5.23" {
		t.Errorf("%d places of %s", s.Places, e.Name())
	}
	text := "hello"
	prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
	if err != nil {
		t.Fatal(err)
	}
	notify := make(chan struct{}, 1)
	s := e.Generate(&wire.Generation{ID: "1", Salt: "acme", Level: 1, Prompt: prompt, Options: wire.Options{N: 1}, Notify: notify})
	<-notify
	s.Close()
	eventually(t, "it is aborted", func() bool { return aborted.Load() != nil })
	body, _ := p.last()
	rid, salt := body["rid"].(string), body["cache_salt"].(string)
	if aborted.Load() != `{"rid":"`+rid+`"}` || len(rid) != len(hashed("1-1")) || strings.HasPrefix(hashed("1-1"), rid) || strings.Contains(salt, "acme") || body["priority"] != 50. {
		t.Errorf("sent %v, aborted %v", body, aborted.Load())
	}
}

// TestDrains: openvinotoolkit/model_server#4428, where a closed connection breaks the
// batch: the answer is read to its end, and holds its place until then. The setting is the
// way out of vllm-project/vllm#50425 and ggml-org/llama.cpp#27604 too, where an abort ends
// the engine's process or lets it hang.
func TestDrains(t *testing.T) {
	gate := make(chan struct{})
	var gone atomic.Bool
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		events(textChunk(0, "Hi", ""))(w, r, nil)
		select {
		case <-gate:
		case <-r.Context().Done():
			gone.Store(true)
		}
		send(w, textChunk(0, "more", "stop"))
	})
	e := open(t, Config{URL: p.URL, Cancel: "drain"})
	text := "hello"
	prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
	if err != nil {
		t.Fatal(err)
	}
	notify := make(chan struct{}, 1)
	s := e.Generate(&wire.Generation{ID: "1", Prompt: prompt, Options: wire.Options{N: 1}, Notify: notify})
	for text := ""; text == ""; { // the first notice may be of the start alone
		<-notify
		for _, e := range s.Take(nil) {
			text += e.Text
		}
	}
	s.Cancel()
	if got := read(t, s, notify, 1); got.end.Err == nil || got.end.Err.Kind != wire.Canceled || got.end.Usage.Completion != 1 {
		t.Errorf("ended with %v, %+v", got.end.Err, got.end.Usage)
	}
	if n := e.State().Sequences; n != 1 || gone.Load() {
		t.Errorf("%d sequences; the server lost its client: %v", n, gone.Load())
	}
	close(gate)
	eventually(t, "its place is free", func() bool { return e.State().Sequences == 0 })
	if gone.Load() {
		t.Error("the server lost its client")
	}
}

// TestDetects: what a server is, and what it says of its limits.
func TestDetects(t *testing.T) {
	for name, c := range map[string]struct {
		owner   string
		pages   map[string]string
		context int
		places  int
		reports string
	}{
		"vllm":             {"vllm", map[string]string{"/version": `{"version":"0.33.0"}`}, 1024, sequencesUnknown, "vllm 0.33.0"},
		"llama-server":     {"llamacpp", map[string]string{"/props": `{"total_slots":3,"build_info":"b9","default_generation_settings":{"n_ctx":512}}`}, 512, 3, "llama-server b9"},
		"llama-cpp-python": {"me", nil, 1024, 1, "llama-cpp-python"},
		"tgi":              {"org/model", map[string]string{"/info": `{"version":"3.3","max_concurrent_requests":128,"max_total_tokens":4096}`}, 4096, 128, "tgi 3.3"},
		"ollama":           {"library", map[string]string{"/api/version": `{"version":"0.12"}`, "/api/ps": `{"models":[{"name":"m","context_length":4096}]}`}, 4096, 1, "ollama 0.12"},
		"ollama, own":      {"jane", map[string]string{"/api/version": `{"version":"0.12"}`}, 1024, 1, "ollama 0.12"},
		"tensorrt-llm":     {"tensorrt_llm", map[string]string{"/version": `{"version":"1.4"}`}, 1024, sequencesUnknown, "tensorrt-llm 1.4"},
		"dynamo":           {"nvidia", nil, 1024, sequencesUnknown, "dynamo"},
		"openvino":         {"OVMS", map[string]string{"/v3/models": oneModel, "/v2": `{"name":"OpenVINO Model Server","version":"2026.3"}`}, 1024, sequencesUnknown, "openvino 2026.3"},
		"anything":         {"someone", nil, 1024, sequencesUnknown, "openai"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, nil)
			p.models = listOf(c.owner)
			for path, page := range c.pages {
				p.pages[path] = page
			}
			if c.pages["/v3/models"] != "" {
				inner := p.Config.Handler
				p.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/models" {
						http.NotFound(w, r)
						return
					}
					inner.ServeHTTP(w, r)
				})
			}
			e := open(t, Config{URL: p.URL})
			if s := e.State(); e.Name() != c.reports || s.Places != c.places || s.Model.ContextTokens != c.context {
				t.Errorf("%s with %d places and a context of %d; want %+v", e.Name(), s.Places, s.Model.ContextTokens, c)
			}
		})
	}
}

// TestPromptsThatWouldBeCut: ollama/ollama#4967, a server that shortens prompts without
// a word never gets one that it would shorten.
func TestPromptsThatWouldBeCut(t *testing.T) {
	p := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	p.models = listOf("library")
	e := open(t, Config{URL: p.URL, ContextTokens: 100})
	text := strings.Repeat("one and another ", 60)
	if _, err := e.Prepare(context.Background(), &wire.Request{Text: &text}); wire.AsError(err).Kind != wire.ContextLength {
		t.Errorf("a prompt of twice the context: %v", err)
	}
}

// FuzzEvents: whatever bytes come, and wherever they are cut, the reader gives the
// same events as for the whole, and never more than its limit.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\r\n\r\n:x\rdata: b\ndata: c\n\nevent: error\ndata: d\n\ndata: e"), 3)
	f.Add([]byte("data: \xf0\x9f\x98\x80\n\n\n\n\r\r\ndata"), 1)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		all := func(r io.Reader) (got []string) {
			events := newEventReader(r, 64)
			for {
				data, failure, err := events.next()
				if err != nil {
					return append(got, err.Error())
				}
				if len(data) > 64 {
					t.Fatalf("an event of %d bytes", len(data))
				}
				got = append(got, fmt.Sprintf("%v %q", failure, data))
			}
		}
		whole, cut := all(strings.NewReader(string(text))), all(&pieces{text, 1 + max(piece, -piece)%7})
		if fmt.Sprint(whole) != fmt.Sprint(cut) {
			t.Errorf("%q gives %q, and in pieces %q", text, whole, cut)
		}
	})
}

// pieces reads a few bytes at a time.
type pieces struct {
	rest []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.n, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}
