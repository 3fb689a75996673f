package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// several is an engine in front of n servers that answer at once.
func several(t *testing.T, n int, cfg Config) (*Engine, []*peer) {
	var peers []*peer
	for range n {
		p := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
		peers = append(peers, p)
		cfg.Servers = append(cfg.Servers, Server{URL: p.URL, Weight: 1})
	}
	e := open(t, cfg)
	eventually(t, "all servers are found", func() bool { return e.State().Places == n*sequencesUnknown })
	return e, peers
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asked)
}

func say(t *testing.T, e *Engine, text string) outcome {
	t.Helper()
	messages, _ := json.Marshal([]map[string]string{{"role": "user", "content": text}})
	p, err := e.Prepare(context.Background(), &wire.Request{Messages: messages})
	if err != nil {
		t.Fatal(err)
	}
	return generate(t, e, p, wire.Options{})
}

// TestTurnsOfAChatStayTogether: the turns of a chat go to the server that has their
// beginning, and chats are spread.
func TestTurnsOfAChatStayTogether(t *testing.T) {
	e, peers := several(t, 3, Config{CheckInterval: 4 * time.Second})
	moved, used := 0, map[int]bool{}
	for chat := range 12 {
		text, home := fmt.Sprintf("chat %d. ", chat), -1
		for range 4 {
			text += strings.Repeat(fmt.Sprintf("word%d ", chat), 200)
			var before []int
			for _, p := range peers {
				before = append(before, p.count())
			}
			// What the servers' costs are by now says little about ones that answer at once.
			e.mu.Lock()
			for _, r := range e.replicas {
				r.ledger.window.Forget(r.limits(r.model))
			}
			e.mu.Unlock()
			if got := say(t, e, text); got.end.Err != nil {
				t.Fatal(got.end.Err)
			}
			for i, p := range peers {
				if p.count() > before[i] {
					used[i] = true
					if home >= 0 && home != i {
						moved++
					}
					home = i
				}
			}
		}
	}
	if moved > 0 {
		t.Errorf("%d turns went to another server than the turn before", moved)
	}
	busy, _ := e.Prepare(context.Background(), &wire.Request{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`)})
	e.mu.Lock()
	defer e.mu.Unlock()
	v := busy.Relayed.(*relayed)
	for _, r := range e.replicas { // as many as there are places, one by one
		for range sequencesUnknown {
			w := &generation{engine: e, asked: &wire.Generation{Prompt: busy}, prompt: 3, n: 1}
			at := e.choose(v, 1, 3, nil)
			w.enter(at)
		}
		_ = r
	}
	for _, r := range e.replicas {
		if n := r.ledger.window.View(0).Inside; n != sequencesUnknown {
			t.Errorf("%d sequences at a server of %d places", n, sequencesUnknown)
		}
	}
}

// TestOneOfSeveralFails: requests go on at the others, before their first byte, and a
// server that cannot be reached is not asked for long.
func TestOneOfSeveralFails(t *testing.T) {
	e, peers := several(t, 2, Config{CheckInterval: 50 * time.Millisecond})
	peers[0].CloseClientConnections()
	peers[0].Close()
	for i := range 20 {
		if got := say(t, e, fmt.Sprint("request ", i)); got.end.Err != nil {
			t.Fatalf("request %d: %v", i, got.end.Err)
		}
	}
	eventually(t, "the dead one is not used", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return !e.replicas[0].health.usable()
	})
	if e.State().Err != nil {
		t.Error(e.State().Err)
	}
	peers[1].answer = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { w.WriteHeader(503) }
	if got := say(t, e, "x"); got.end.Err == nil || got.end.Err.Kind != wire.Overloaded {
		t.Errorf("with nobody left: %v", got.end.Err)
	}
}

// TestBusyServerPassesOn: a server without room passes its request on to one with some.
func TestBusyServerPassesOn(t *testing.T) {
	e, peers := several(t, 2, Config{CheckInterval: 4 * time.Second})
	for _, p := range peers {
		calm := p.answer
		p.answer = func(w http.ResponseWriter, r *http.Request, body map[string]any) {
			if p == peers[0] {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			calm(w, r, body)
		}
	}
	for range 6 {
		if got := say(t, e, "hello"); got.end.Err != nil {
			t.Fatal(got.end.Err)
		}
		if s := e.State(); s.Sequences != 0 || s.ShortPrefill != 0 {
			t.Fatalf("after the end: %+v", s.Load)
		}
	}
}

// TestOneModel: servers under one name have one model.
func TestOneModel(t *testing.T) {
	a := newPeer(t, events(deltaChunk(`{"content":"Hi"}`, "stop"), "[DONE]"))
	b := newPeer(t, nil)
	b.models = strings.ReplaceAll(oneModel, `"m"`, `"other"`)
	e := open(t, Config{URL: a.URL + ", " + b.URL})
	time.Sleep(100 * time.Millisecond)
	if s := e.State(); s.Places != sequencesUnknown {
		t.Errorf("%d places of servers with two models", s.Places)
	}
	if err := (&Config{URL: "http://a,http://a"}).Mistakes(); err == nil {
		t.Error("one server twice is taken")
	}
}

// TestHealth: what takes a server out of use, for how long, and how it comes back.
func TestHealth(t *testing.T) {
	const s = time.Second
	h := &health{found: true}
	if why := h.verdict(9*s, 0, 100*s); why != "" {
		t.Errorf("quiet for 9 s: %s", why)
	}
	if why := h.verdict(11*s, s, 100*s); why != "" {
		t.Errorf("quiet for 11 s with a token a second: %s", why)
	}
	if why := h.verdict(11*s, 50*time.Millisecond, 100*s); why == "" {
		t.Error("a server that sends nothing is kept")
	}
	for _, end := range []answerEnd{endServed, endServed, endBroken, endBroken, endBroken} {
		h.answer(end, 100*s)
	}
	if h.verdict(0, 0, 101*s) == "" || h.verdict(0, 0, 120*s) != "" {
		t.Error("3 broken answers of 5 in ten seconds eject, and older ones do not")
	}
	h = &health{found: true}
	for range 9 {
		h.answer(endRefused, 100*s)
	}
	if h.verdict(0, 0, 101*s) == "" {
		t.Error("a server that fails every request is kept")
	}
	if h.answer(endServed, 100*s); h.verdict(0, 0, 101*s) != "" {
		t.Error("a client whose requests fail takes a server that serves others")
	}
	h = &health{found: true}
	for range 3 {
		h.connected(true)
		h.connected(false)
		h.connected(false)
	}
	if h.verdict(0, 0, s) != "" {
		t.Error("2 failed connections eject")
	}
	h.connected(false)
	if h.verdict(0, 0, s) == "" {
		t.Error("3 failed connections do not eject")
	}
	now, last := time.Duration(s), time.Duration(0)
	for range 9 {
		h.eject(now)
		if wait := h.until - now; wait < last || wait > ejectMost {
			t.Errorf("ejected for %v after %v", wait, last)
		} else {
			last = wait
		}
		if h.usable() || h.verdict(99*s, 0, now) != "" {
			t.Error("an ejected server is used, or ejected again")
		}
		now = h.until
		h.readmit(false, now)
	}
	if last != ejectMost {
		t.Errorf("ejected for %v in the end", last)
	}
	h.readmit(true, now)
	if !h.usable() || h.share(now) != slowStartLeast || h.share(now+slowStart) != 1 {
		t.Errorf("taken back with %v of its places, %v later", h.share(now), h.share(now+slowStart))
	}
	h.eject(now + forgiveAfter + s)
	if h.until-now > forgiveAfter+2*s+ejectFirst {
		t.Error("old ejections are not forgotten")
	}
}

// TestStuckServer: ggml-org/llama.cpp#27388, NVIDIA/TensorRT-LLM#18663,
// vllm-project/vllm#39863 and openvinotoolkit/model_server#4503, a server that says it is well and computes nothing is not used, and is tried with one token
// before it is used again.
func TestStuckServer(t *testing.T) {
	e, peers := several(t, 2, Config{CheckInterval: 4 * time.Second})
	r := e.replicas[0]
	e.mu.Lock()
	r.ledger.running, r.ledger.since = 1, wire.Monotonic()-int64(time.Hour)
	e.mu.Unlock()
	r.judge()
	if e.State().Places != sequencesUnknown {
		t.Error("a stuck server is used")
	}
	e.mu.Lock()
	r.ledger.running = 0
	r.health.until = 0
	e.mu.Unlock()
	asked := peers[0].count()
	r.judge()
	if body, _ := peers[0].last(); peers[0].count() != asked+1 || body["max_tokens"] != 1. {
		t.Errorf("tried with %v", body)
	}
	// A canary's answer is JSON; this server streams, so it is still out.
	if e.State().Places != sequencesUnknown {
		t.Error("a server whose answer is not understood is used")
	}
	e.mu.Lock()
	r.health.until = 0
	e.mu.Unlock()
	peers[0].answer = func(w http.ResponseWriter, _ *http.Request, _ map[string]any) { fmt.Fprint(w, `{"choices":[{}]}`) }
	r.judge()
	if n := e.State().Places; n != sequencesUnknown+1 {
		t.Errorf("%d places; want those of the other, and one to begin with", n)
	}
	// The last one is never ejected.
	for _, r := range e.replicas {
		e.mu.Lock()
		r.ledger.running, r.ledger.since = 1, wire.Monotonic()-int64(time.Hour)
		e.mu.Unlock()
		r.judge()
	}
	if e.State().Err != nil {
		t.Error("no server is left")
	}
	e.mu.Lock()
	for _, r := range e.replicas {
		r.ledger.running = 0
	}
	e.mu.Unlock()
}
