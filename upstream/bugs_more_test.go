package upstream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestNoSessionsNoSlots: sgl-project/sglang#36475, ggml-org/llama.cpp#28139 and #24746.
// A client's sessions, slots and transfers are left out, and where the operator says so
// no prompt is taken from another's cache (ggml-org/llama.cpp#27148).
func TestNoSessionsNoSlots(t *testing.T) {
	p := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	p.models = listOf("llamacpp")
	p.pages["/health"] = "{}"
	e := open(t, Config{URL: p.URL, PromptCacheOff: true})
	chat(t, e, `"id_slot":1,"session_params":{"id":"x"},"session_id":"s","cache_prompt":true,"kv_transfer_params":{},"rid":"1"`, wire.Options{})
	body, _ := p.last()
	for _, name := range []string{"id_slot", "session_params", "session_id", "kv_transfer_params", "rid"} {
		if body[name] != nil {
			t.Errorf("sent %s", name)
		}
	}
	if body["cache_prompt"] != false {
		t.Errorf("cache_prompt is %v", body["cache_prompt"])
	}
}

// TestLastTokensAreCounted: vllm-project/vllm#41691, a server that makes tokens whose
// events it does not send is billed by its own usage.
func TestLastTokensAreCounted(t *testing.T) {
	p := newPeer(t, events(deltaChunk(`{"reasoning_content":"so"}`, ""), deltaChunk(`{"content":"Hi"}`, "stop"), usageChunk(3, 6), "[DONE]"))
	e := open(t, Config{URL: p.URL})
	if got := chat(t, e, "", wire.Options{}); got.end.Err != nil || got.end.Usage.Completion != 6 || got.tokens != 6 {
		t.Errorf("%+v, %+v", got, got.end)
	}
}

// TestCancelThroughProxy: vllm-project/vllm#54947 and ai-dynamo/dynamo#13691. A client that
// leaves, before or after its first token, ends the work also behind a proxy.
func TestCancelThroughProxy(t *testing.T) {
	for name, first := range map[string]bool{"before the first token": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			var gone, begun atomic.Bool
			p := newPeer(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
				stream(w)
				if first {
					send(w, textChunk(0, "Hi", ""))
				}
				begun.Store(true)
				<-r.Context().Done()
				gone.Store(true)
			})
			at, err := url.Parse(p.URL)
			if err != nil {
				t.Fatal(err)
			}
			between := httputil.NewSingleHostReverseProxy(at)
			between.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
			proxy := httptest.NewServer(between)
			defer proxy.Close()
			e := open(t, Config{URL: proxy.URL, CheckInterval: 4 * time.Second})
			text := "hello"
			prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
			if err != nil {
				t.Fatal(err)
			}
			notify := make(chan struct{}, 1)
			s := e.Generate(&wire.Generation{ID: "1", Prompt: prompt, Options: wire.Options{N: 1}, Notify: notify})
			eventually(t, "the server has begun", begun.Load)
			s.Close()
			eventually(t, "the server knows that nobody reads", gone.Load)
			eventually(t, "the place is free", func() bool { return e.State().Sequences == 0 })
		})
	}
}

// TestServerThatAlwaysRefuses: ollama/ollama#7573 and NVIDIA/TensorRT-LLM#9628. A server
// that answers its health page and fails every request is taken out of use beside
// another, and gets one token to try before it is used again.
func TestServerThatAlwaysRefuses(t *testing.T) {
	e, peers := several(t, 2, Config{CheckInterval: 10 * time.Millisecond})
	var broken atomic.Bool
	broken.Store(true)
	calm := peers[0].answer
	peers[0].answer = func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		switch {
		case broken.Load():
			http.Error(w, `{"error":"No free slots"}`, http.StatusInternalServerError)
		case body["stream"] == nil: // the canary
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"choices":[{}]}`)
		default:
			calm(w, r, body)
		}
	}
	asked := 0
	eventually(t, "it is taken out of use", func() bool {
		asked++
		say(t, e, strings.Repeat("x", asked))
		return stateOf(e, peers[0].URL) == "ejected"
	})
	if got := say(t, e, "x"); got.end.Err != nil {
		t.Errorf("with the other alone: %v", got.end.Err)
	}
	broken.Store(false)
	eventually(t, "it is used again", func() bool { return stateOf(e, peers[0].URL) == "starting" })
}

// TestSlowHealthPage: ikawrakow/ik_llama.cpp#1210. A server whose health page does not answer
// while it computes is well as long as tokens come, and only then.
func TestSlowHealthPage(t *testing.T) {
	e := open(t, Config{URL: newPeer(t, nil).URL})
	asked, answer := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answer
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer slow.Close()
	to, err := newServer(&Config{URL: slow.URL, IdleConnections: 1, MessageBytesMax: 1 << 10, ConnectLimit: patience}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer to.client.close()
	e.mu.Lock()
	r := &replica{engine: e, cfg: e.cfg, server: to, ctx: e.ctx, model: e.replicas[0].model, health: health{found: true}}
	e.mu.Unlock()
	r.cfg.ConnectLimit = patience
	for _, computes := range []bool{true, false} {
		checked := make(chan error, 1)
		go func() { checked <- r.check() }()
		<-asked
		if computes {
			e.mu.Lock()
			r.ledger.heard = wire.Monotonic()
			e.mu.Unlock()
		}
		answer <- struct{}{}
		if err := <-checked; (err == nil) != computes {
			t.Errorf("tokens come %v: %v", computes, err)
		}
	}
}

// TestOneAtATime: abetlen/llama-cpp-python#897, where a second request interrupts the first:
// it has one place, and that is not learned to be more.
func TestOneAtATime(t *testing.T) {
	p := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	p.models = listOf("me")
	e := open(t, Config{URL: p.URL})
	for range 64 {
		if got := chat(t, e, "", wire.Options{}); got.end.Err != nil {
			t.Fatal(got.end.Err)
		}
	}
	if s := e.State(); s.Places != 1 || !s.Upstreams[0].PlacesExact {
		t.Errorf("%d places, exact %v", s.Places, s.Upstreams[0].PlacesExact)
	}
}
