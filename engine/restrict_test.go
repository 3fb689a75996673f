package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestRestrictions: which tokens the options let a choice have. The model is one of
// random logits.
func TestRestrictions(t *testing.T) {
	b := newLab(t, labSetup{})
	tok := b.loaded.tokenizer
	ask := func(o wire.Options) ([]int32, answer) {
		var ids []int32
		o.Temperature, o.Seed, o.Logprobs = 1, 3, true
		a := b.ask(question{id: "q", tokens: prompt(2, 20), options: o})
		for _, l := range a.logprobs[0] {
			ids = append(ids, l.ID)
		}
		return ids, a
	}
	allowed := []int32{400, 401, 402, 1700}
	ids, _ := ask(wire.Options{MaxTokens: 40, AllowedTokens: allowed, IgnoreEOS: true})
	for _, id := range ids {
		if !slices.Contains(allowed, id) {
			t.Errorf("token %d is not allowed", id)
		}
	}
	if len(ids) != 40 {
		t.Errorf("%d tokens", len(ids))
	}
	end := tok.EOS()
	early := append([]int32{end}, allowed[:1]...)
	ids, a := ask(wire.Options{MaxTokens: 60, MinTokens: 30, AllowedTokens: early})
	if len(ids) < 30 || len(ids) >= 60 || a.finishes[0] != wire.FinishStop {
		t.Errorf("%d tokens, finish %d", len(ids), a.finishes[0])
	}
	ids, a = ask(wire.Options{MaxTokens: 60, MinTokens: 10, StopTokens: []int32{400}, AllowedTokens: []int32{400, 401}})
	if a.finishes[0] != wire.FinishStop || a.counts[0] < 11 || slices.Contains(ids, 400) || strings.Contains(a.texts[0], string(tok.Bytes(400))) {
		t.Errorf("%v, finish %d", ids, a.finishes[0])
	}
	kept, a := ask(wire.Options{MaxTokens: 60, MinTokens: 10, StopTokens: []int32{400}, AllowedTokens: []int32{400, 401}, KeepStop: true})
	if !slices.Equal(kept, ids) || !strings.HasSuffix(a.texts[0], string(tok.Bytes(400))) {
		t.Errorf("%q lacks the stop token", a.texts[0])
	}
	_, a = ask(wire.Options{MaxTokens: 9, MinTokens: 5, AllowedTokens: []int32{end}})
	if e := a.end.Err; e == nil || e.Kind != wire.GrammarFailed || !strings.Contains(e.Message, "no token to go on with after 0 tokens") {
		t.Errorf("%v", a.end.Err)
	}
	_, a = ask(wire.Options{MaxTokens: 9, AllowedTokens: []int32{int32(tok.Size())}})
	if e := a.end.Err; e == nil || e.Kind != wire.Invalid || e.Param != "allowed_token_ids" {
		t.Errorf("%v", a.end.Err)
	}
}

// TestBadWords: no spelling by the tokenizer, with a space before it or without, comes whole.
func TestBadWords(t *testing.T) {
	b := newLab(t, labSetup{})
	tok := b.loaded.tokenizer
	long := tok.Encode(nil, "zebra", tokenizer.EncodeOptions{})
	if len(long) < 2 {
		t.Fatal("the word is one token")
	}
	ask := func(o wire.Options) string {
		o.Temperature, o.MaxTokens, o.IgnoreEOS, o.AllowedTokens = 1, 600, true, slices.Compact(slices.Sorted(slices.Values(long)))
		return b.ask(question{id: "q", tokens: prompt(2, 20), options: o}).texts[0]
	}
	if free := ask(wire.Options{}); !strings.Contains(free, "zebra") {
		t.Fatalf("the word does not come by itself: the test shows nothing (%d tokens)", len(long))
	}
	if held := ask(wire.Options{BadWords: []string{"zebra"}}); strings.Contains(held, "zebra") || len(held) < 600 {
		t.Errorf("%q", held)
	}
}

// TestStopTextsAfterMinTokens: those that begin before do not count; one may be kept.
func TestStopTextsAfterMinTokens(t *testing.T) {
	for _, c := range []struct {
		text   string
		least  int
		keep   bool
		want   string
		finish wire.Finish
	}{
		{"one two three", 0, false, "one ", wire.FinishStop}, {"one two three", 0, true, "one two", wire.FinishStop},
		{"two two", 1, false, "two ", wire.FinishStop}, {"two two", 1, true, "two two", wire.FinishStop},
	} {
		b := spelled(t, plainTemplate, c.text)
		if n := len(b.loaded.tokenizer.Encode(nil, "two", tokenizer.EncodeOptions{})); c.least == 1 {
			c.least = n
		}
		a, err := b.converse(wire.Options{Stop: []string{"two"}, MinTokens: c.least, KeepStop: c.keep}, "", "")
		if err != nil || a.texts[0] != c.want || a.finishes[0] != c.finish {
			t.Errorf("%+v: %q, finish %d, %v", c, a.texts[0], a.finishes[0], err)
		}
	}
}

// TestContinueFinalMessage: the prompt ends where the message does.
func TestContinueFinalMessage(t *testing.T) {
	b := newLab(t, labSetup{template: toolTemplate})
	prompt := func(messages string) (*wire.Prompt, error) {
		return b.Prepare(t.Context(), &wire.Request{Messages: json.RawMessage(messages), Continue: true})
	}
	for content, want := range map[string]string{`"The sum is "`: "The sum is ", `[{"type":"text","text":"a"},{"type":"text","text":"b\n"}]`: "ab\n", `"<|im_end|>x"`: "<|im_end|>x"} {
		p, err := prompt(`[{"role":"user","content":"1+1"},{"role":"assistant","content":` + content + `}]`)
		if err != nil {
			t.Fatal(err)
		}
		if p.Text != "<|im_start|>user\n1+1<|im_end|>\n<|im_start|>assistant\n"+want {
			t.Errorf("%s: %q", content, p.Text)
		}
	}
	hides := newLab(t, labSetup{template: `{% for m in messages %}{{ m.role }}{% endfor %}`})
	if _, err := hides.Prepare(t.Context(), &wire.Request{Messages: json.RawMessage(`[{"role":"assistant","content":"x"}]`), Continue: true}); wire.AsError(err).Param != "continue_final_message" {
		t.Errorf("a template that hides it: %v", err)
	}
}
