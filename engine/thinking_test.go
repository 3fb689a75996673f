package engine

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestThinkingBudget: reasoning ends after its tokens, and the answer goes on.
func TestThinkingBudget(t *testing.T) {
	b := spelled(t, toolTemplate, "one two three four five six seven eight nine ten</think>Yes.")
	for _, most := range []int{1, 4, 9} {
		a, err := b.converse(wire.Options{ReasoningMax: most, MaxTokens: 60}, "", `{"think":true}`)
		if err != nil || a.end.Err != nil {
			t.Fatal(err, a.end)
		}
		closing := len(b.loaded.speech.closing)
		thought := a.pieces[0]
		if thought.Kind != wire.PieceReasoning || strings.Contains(thought.Text, "ten") || a.end.Usage.Reasoning != most+closing {
			t.Errorf("at most %d tokens: %d of reasoning with %d that end it: %s", most, a.end.Usage.Reasoning, closing, a.shape())
		}
	}
	a, err := b.converse(wire.Options{ReasoningMax: 1000}, "", `{"think":true}`)
	if err != nil || a.shape() != "(one two three four five six seven eight nine ten)Yes. stop" {
		t.Errorf("%v %s", err, a.shape())
	}
}

// TestThinkingOfRealTemplates: what they let a request choose.
func TestThinkingOfRealTemplates(t *testing.T) {
	const folder = "../../shared/conformance/templates/"
	b := newLab(t, labSetup{cfg: Config{ContextTokens: 8192}})
	for name, want := range map[string]struct {
		toggle  string
		efforts []string
	}{
		"Qwen-Qwen3-0.6B": {"enable_thinking", nil}, "GLM-4.6": {"enable_thinking", nil}, "ibm-granite-granite-3.3-2B-Instruct": {"thinking", nil},
		"deepseek-ai-DeepSeek-V3.1": {"enable_thinking", nil}, "openai-gpt-oss-120b": {"", []string{"low", "medium", "high"}},
		"tencent-Hy3": {"", []string{"low", "high"}}, "Qwen-Qwen2.5-7B-Instruct": {"", nil},
	} {
		data, err := os.ReadFile(folder + name + ".json")
		if err != nil {
			t.Skip("test data is missing: " + folder)
		}
		var ref struct{ Template string }
		if err := json.Unmarshal(data, &ref); err != nil {
			t.Fatal(err)
		}
		b.loaded.loadTemplate(b.loaded.chatConfig(ref.Template))
		k := b.loaded.speech.thinking
		if k.toggle != want.toggle || !slices.Equal(k.efforts, want.efforts) || b.loaded.info.ThinkSwitch != (want.toggle != "") || b.loaded.info.Efforts != (want.efforts != nil) {
			t.Errorf("%s: %q, %q; want %+v", name, k.toggle, k.efforts, want)
		}
		texts := map[string]bool{}
		for _, r := range []wire.Request{{Think: wire.ThinkOff}, {Think: wire.ThinkOn}, {Think: wire.ThinkOn, Effort: "low"}, {Think: wire.ThinkOn, Effort: "high", TemplateOptions: json.RawMessage(`{ "x": 1 }`)}} {
			r.ID, r.Messages = "x", json.RawMessage(`[{"role":"user","content":"hi"}]`)
			p, err := b.Prepare(context.Background(), &r)
			if err != nil {
				t.Errorf("%s: %+v: %v", name, r, err)
				continue
			}
			texts[p.Text] = true
		}
		distinct := 1
		if want.toggle != "" {
			distinct = 2
		}
		if want.efforts != nil {
			distinct++
		}
		if len(texts) < distinct {
			t.Errorf("%s: %d prompts", name, len(texts))
		}
	}
}

// TestReasoningThatCannotBeTurnedOff is refused with what to do instead.
func TestReasoningThatCannotBeTurnedOff(t *testing.T) {
	b := spelled(t, strings.Replace(toolTemplate, "{% if think %}", "{% if true %}", 1), "x")
	_, err := b.Prepare(context.Background(), &wire.Request{ID: "x", Think: wire.ThinkOff, Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`)})
	if e := wire.AsError(err); err == nil || e.Kind != wire.Invalid || !strings.Contains(e.Message, "thinking_budget") {
		t.Error(err)
	}
	if got := withOptions(json.RawMessage(` { } `), []string{`"a":1`}); string(got) != `{"a":1}` {
		t.Errorf("%s", got)
	}
}
