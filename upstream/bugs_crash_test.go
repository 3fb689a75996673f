package upstream

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestServerCrashes: vllm-project/vllm#23347, a server that dies while it orders by
// priority. The answers that it had begun end with an error, each, and never as whole; one
// that it had not begun is computed by another server; no place stays taken.
func TestServerCrashes(t *testing.T) {
	e, peers := several(t, 2, Config{CheckInterval: 20 * time.Millisecond})
	var begun atomic.Int32
	die := make(chan struct{})
	crash := func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
		if body["prompt"] != "late" {
			stream(w)
			send(w, textChunk(0, "Hi", ""))
		}
		begun.Add(1)
		<-die
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			c.Close()
		}
	}
	well := events(textChunk(0, "whole", "stop"), "[DONE]")
	peers[0].answer, peers[1].answer = crash, well
	e.DrainUpstream(peers[1].URL, true)
	type asked struct {
		stream *wire.Stream
		notify chan struct{}
		want   string
	}
	var all []asked
	for i, want := range []string{"Hi", "Hi", "Hi", "whole"} {
		text := fmt.Sprint("early ", i)
		if want == "whole" {
			text = "late"
		}
		prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
		if err != nil {
			t.Fatal(err)
		}
		notify := make(chan struct{}, 1)
		s := e.Generate(&wire.Generation{ID: text, Prompt: prompt, Options: wire.Options{N: 1}, Notify: notify})
		defer s.Close()
		all = append(all, asked{s, notify, want})
	}
	eventually(t, "all are there", func() bool { return begun.Load() == 4 })
	e.DrainUpstream(peers[1].URL, false)
	close(die)
	for _, a := range all {
		got := read(t, a.stream, a.notify, 1)
		if whole := got.end.Err == nil; whole != (a.want == "whole") || got.texts[0] != a.want || whole != (got.finishes[0] == wire.FinishStop) {
			t.Errorf("%+v, ended with %v; want %s", got, got.end.Err, a.want)
		}
	}
	eventually(t, "all places are free", func() bool { return e.State().Sequences == 0 })
}

// TestClientLeavesAndServerDoesNotNotice: ggml-org/llama.cpp#24496, #13262 and #11720. A server
// that goes on with what nobody reads has a place less for a while, since that is what it
// has; and no more requests of clients that left can be there than it has places.
func TestClientLeavesAndServerDoesNotNotice(t *testing.T) {
	release := make(chan struct{})
	p := newPeer(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
		stream(w)
		send(w, textChunk(0, "Hi", ""))
		<-release // it does not look at its connection
	})
	t.Cleanup(func() { close(release) })
	e := open(t, Config{URL: p.URL, SequencesMax: 3})
	text := "hello"
	prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
	if err != nil {
		t.Fatal(err)
	}
	notify := make(chan struct{}, 1)
	s := e.Generate(&wire.Generation{ID: "1", Prompt: prompt, Options: wire.Options{N: 1}, Notify: notify})
	<-notify
	s.Close()
	eventually(t, "it has ended here", func() bool { return e.State().Sequences == 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	r, now := e.replicas[0], time.Duration(wire.Monotonic())
	r.ledger.lingering[0].until = now + time.Second // however long this test takes
	if n := r.places(now); n != 2 || p.inside.Load() != 1 {
		t.Errorf("%d places with %d at the server", n, p.inside.Load())
	}
	if n := r.places(now + time.Second); n != 3 {
		t.Errorf("%d places later", n)
	}
}

// TestCachedTokensOfUsages: vllm-project/vllm#16162 and #44377. Cached tokens that a server
// leaves out, or says are null, count as none, and never more than the prompt has.
func TestCachedTokensOfUsages(t *testing.T) {
	for usage, want := range map[string]int{
		`{"prompt_tokens":40,"completion_tokens":1}`:                                                0,
		`{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":null}`:                   0,
		`{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"audio_tokens":null}}`:  0,
		`{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":null}}`: 0,
		`{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}`:    0,
		`{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":16}}`:   16,
		`{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":41}}`:   40,
		`{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":-1}}`:   0,
	} {
		p := newPeer(t, events(textChunk(0, "Hi", "stop"), `{"choices":[],"usage":`+usage+`}`, "[DONE]"))
		e := open(t, Config{URL: p.URL})
		got := chat(t, e, "", wire.Options{})
		if u := got.end.Usage; got.end.Err != nil || u.Cached != want || u.Computed != 40-want || u.Prompt != 40 {
			t.Errorf("%s is %+v, %v", usage, u, got.end.Err)
		}
		e.Close()
	}
}
