package upstream

import (
	"context"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

// byWords counts a token for each word of a text, and off more.
type byWords struct{ off int }

func (c *byWords) Tokens(_ context.Context, r *wire.Request) ([]int32, bool) {
	if r.Text == nil {
		return nil, false
	}
	return make([]int32, len(strings.Fields(*r.Text))+c.off), true
}

// TestOwnTokenizer: prompts are counted here to the token, until the server's counts
// differ; then it is asked or they are estimated, and the operator is told.
func TestOwnTokenizer(t *testing.T) {
	usage := usageChunk(3, 1)
	p := newPeer(t, events(textChunk(0, "Hi", "stop"), usage, "[DONE]"))
	c := new(byWords)
	e := open(t, Config{URL: p.URL, Counter: c})
	ask := func(text string) int {
		t.Helper()
		prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text})
		if err != nil {
			t.Fatal(err)
		}
		if got := generate(t, e, prompt, wire.Options{}); got.end.Err != nil {
			t.Fatal(got.end.Err)
		}
		return prompt.Count
	}
	for range trustProbes + 5 {
		if n := ask("one two three"); n != 3 {
			t.Fatalf("counted %d", n)
		}
	}
	if u := e.State().Upstreams[0]; u.Tokenizer != "trusted" {
		t.Errorf("it is %q", u.Tokenizer)
	}
	c.off = 1
	for range trustWrong + 1 {
		if n := ask("one two three"); n != 4 {
			t.Fatalf("counted %d", n)
		}
	}
	if u := e.State().Upstreams[0]; u.Tokenizer != "differs" {
		t.Errorf("after %d wrong counts it is %q", trustWrong+1, u.Tokenizer)
	}
	text := "one two three"
	if prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text}); err != nil || prompt.Relayed.(*relayed).counted != 0 {
		t.Errorf("it is used all the same: %v", err)
	}
}

// TestOwnTokenizerIsProbed: where the server can count, the first prompts are counted
// by both, and its word counts.
func TestOwnTokenizerIsProbed(t *testing.T) {
	p := newPeer(t, events(textChunk(0, "Hi", "stop"), "[DONE]"))
	p.models = listOf("vllm")
	p.pages["/health"], p.pages["/tokenize"] = "{}", `{"count":7}`
	e := open(t, Config{URL: p.URL, Counter: new(byWords)})
	text := "one two three"
	for range trustWrong + 1 {
		if prompt, err := e.Prepare(context.Background(), &wire.Request{Text: &text}); err != nil || prompt.Count != 7 {
			t.Fatalf("counted %d, %v", prompt.Count, err)
		}
	}
	e.tick()
	if u := e.State().Upstreams[0]; u.Tokenizer != "differs" {
		t.Errorf("it is %q", u.Tokenizer)
	}
}
