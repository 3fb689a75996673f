package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// patience bounds every wait; it is no measure of speed.
const patience = 20 * time.Second

// peer is a scripted server.
type peer struct {
	*httptest.Server
	models  string // the answer of GET /v1/models
	pages   map[string]string
	answer  func(w http.ResponseWriter, r *http.Request, body map[string]any)
	inside  atomic.Int32 // requests that are answered now
	most    atomic.Int32
	mu      sync.Mutex
	asked   []map[string]any // bodies of generations
	headers []http.Header
}

const oneModel = `{"object":"list","data":[{"id":"m","object":"model","created":7,"owned_by":"someone","max_model_len":1024}]}`

func newPeer(t testing.TB, answer func(w http.ResponseWriter, r *http.Request, body map[string]any)) *peer {
	p := &peer{models: oneModel, answer: answer, pages: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch page, ok := p.pages[r.URL.Path]; {
	case ok:
		fmt.Fprint(w, page)
	case r.URL.Path == "/v1/models":
		fmt.Fprint(w, p.models)
	case r.URL.Path == "/v1/chat/completions" || r.URL.Path == "/v1/completions":
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		p.asked, p.headers = append(p.asked, body), append(p.headers, r.Header.Clone())
		p.mu.Unlock()
		n := p.inside.Add(1)
		for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); most = p.most.Load() {
		}
		defer p.inside.Add(-1)
		p.answer(w, r, body)
	default:
		http.NotFound(w, r)
	}
}

// last is the body and the header of the last generation.
func (p *peer) last() (map[string]any, http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[len(p.asked)-1], p.headers[len(p.headers)-1]
}

// events answers with server-sent events, which are flushed one by one.
func events(all ...string) func(http.ResponseWriter, *http.Request, map[string]any) {
	return func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		stream(w)
		for _, e := range all {
			send(w, e)
		}
	}
}

func stream(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/event-stream") }

func send(w http.ResponseWriter, data string) bool {
	_, err := fmt.Fprintf(w, "data: %s\n\n", data)
	w.(http.Flusher).Flush()
	return err == nil
}

// generates answers as a server that computes one token of each choice in every
// step, until max_tokens or until the client goes.
func generates(step time.Duration) func(http.ResponseWriter, *http.Request, map[string]any) {
	return func(w http.ResponseWriter, r *http.Request, body map[string]any) {
		stream(w)
		n, most := 1, 1<<30
		if x, ok := body["n"].(float64); ok {
			n = int(x)
		}
		if x, ok := body["max_tokens"].(float64); ok {
			most = int(x)
		}
		for i := range most {
			for c := range n {
				if !send(w, textChunk(c, []string{"wörd ", "piece "}[i%2], "")) {
					return
				}
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(step):
			}
		}
		for c := range n {
			send(w, textChunk(c, "", "length"))
		}
		send(w, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":%d}}`, n*most))
		send(w, "[DONE]")
	}
}

// textChunk is a chunk of a text completion; finish "" is none.
func textChunk(choice int, text, finish string) string {
	reason := "null"
	if finish != "" {
		reason = `"` + finish + `"`
	}
	return fmt.Sprintf(`{"choices":[{"index":%d,"text":%q,"finish_reason":%s}]}`, choice, text, reason)
}

// deltaChunk is a chunk of a chat.
func deltaChunk(delta, finish string) string {
	reason := "null"
	if finish != "" {
		reason = `"` + finish + `"`
	}
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`, delta, reason)
}

func usageChunk(prompt, completion int) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, completion)
}

// open gives an engine that has found its server.
func open(t testing.TB, cfg Config) *Engine {
	t.Helper()
	if cfg.CheckInterval == 0 {
		cfg.CheckInterval = 20 * time.Millisecond
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return e
}

// outcome is what a generation brought.
type outcome struct {
	texts    []string
	deltas   string
	finishes []wire.Finish
	lines    []string // the server's own events, with relay: exact
	usage    string   // the one with the usage alone
	tokens   int
	end      *wire.End
}

// chat asks for one answer to a chat with this body's further members.
func chat(t testing.TB, e *Engine, members string, o wire.Options) outcome {
	t.Helper()
	messages := `[{"role":"user","content":"hello"}]`
	body := `{"model":"x","messages":` + messages
	if members != "" {
		body += "," + members
	}
	p, err := e.Prepare(context.Background(), &wire.Request{ID: "1", Messages: json.RawMessage(messages), Body: json.RawMessage(body + "}")})
	if err != nil {
		t.Fatal(err)
	}
	return generate(t, e, p, o)
}

func generate(t testing.TB, e *Engine, p *wire.Prompt, o wire.Options) outcome {
	t.Helper()
	o.N = max(1, o.N)
	notify := make(chan struct{}, 1)
	s := e.Generate(&wire.Generation{ID: "request-1", Prompt: p, Options: o, Notify: notify})
	defer s.Close()
	return read(t, s, notify, o.N)
}

func read(t testing.TB, s *wire.Stream, notify chan struct{}, n int) outcome {
	t.Helper()
	got := outcome{texts: make([]string, n), finishes: make([]wire.Finish, n)}
	var deltas []string
	deadline := time.After(patience)
	for got.end == nil {
		for _, e := range s.Take(nil) {
			if e.End != nil {
				got.end = e.End
				continue
			}
			got.texts[e.Choice] += e.Text
			if len(e.Relayed.Delta) > 0 {
				deltas = append(deltas, string(e.Relayed.Delta))
			}
			for _, line := range e.Relayed.Lines {
				got.lines = append(got.lines, string(line))
			}
			got.usage += string(e.Relayed.UsageLine)
			if e.Finish != wire.FinishNone {
				got.finishes[e.Choice] = e.Finish
				got.tokens += e.TokenCount
			}
		}
		if got.end != nil {
			break
		}
		select {
		case <-notify:
		case <-deadline:
			t.Fatal("the stream did not end")
		}
	}
	got.deltas = strings.Join(deltas, " ")
	return got
}

// eventually waits for ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
