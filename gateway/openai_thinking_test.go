package gateway

import (
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

// TestThinkingFields: what the engine is asked for, by each name that clients know.
func TestThinkingFields(t *testing.T) {
	m := &wire.Model{Efforts: true, ThinkSwitch: true}
	for fields, want := range map[string]struct {
		think  wire.Think
		effort string
		most   int
	}{
		"": {}, `"reasoning_effort":null,"thinking":null,"think":null,"thinking_budget":null,"reasoning":null,"enable_thinking":null`: {},
		`"reasoning_effort":"none"`: {wire.ThinkOff, "", 0}, `"reasoning_effort":"minimal"`: {wire.ThinkOn, "low", 0}, `"reasoning_effort":"xhigh"`: {wire.ThinkOn, "high", 0},
		`"enable_thinking":true`: {wire.ThinkOn, "", 0}, `"enable_thinking":false`: {wire.ThinkOff, "", 0},
		`"think":false`: {wire.ThinkOff, "", 0}, `"think":"medium"`: {wire.ThinkOn, "medium", 0},
		`"thinking":{"type":"disabled"}`: {wire.ThinkOff, "", 0}, `"thinking":{"type":"enabled","budget_tokens":7}`: {wire.ThinkOn, "", 7},
		`"thinking_budget":5`: {0, "", 5}, `"thinking_budget":-1`: {}, `"thinking_token_budget":0`: {wire.ThinkOff, "", 0},
		`"reasoning":{"effort":"high","max_tokens":9}`: {wire.ThinkOn, "high", 9},
	} {
		c, err := decodeCall([]byte(chatBody(fields)), true, limits(), m)
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		if p := c.prompts[0]; p.Think != want.think || p.Effort != want.effort || c.options.ReasoningMax != want.most || len(c.ignored) > 0 {
			t.Errorf("%s: %v %q %d, ignored %v", fields, p.Think, p.Effort, c.options.ReasoningMax, c.ignored)
		}
	}
	for fields, param := range map[string]string{
		`"reasoning_effort":"much"`: "reasoning_effort", `"reasoning_effort":3`: "reasoning_effort", `"enable_thinking":"yes"`: "enable_thinking", `"think":1`: "think",
		`"thinking":true`: "thinking", `"thinking":{"type":"enabled","budget_tokens":-2}`: "thinking.budget_tokens", `"thinking_budget":1.5`: "thinking_budget",
		`"reasoning":"low"`: "reasoning", `"reasoning":{"effort":"much"}`: "reasoning.effort", `"include_reasoning":0`: "include_reasoning",
	} {
		if _, err := decodeCall([]byte(chatBody(fields)), true, limits(), m); err == nil || err.Param != param {
			t.Errorf("%s: %v, want param %s", fields, err, param)
		}
	}
	c, err := decodeCall([]byte(chatBody(`"reasoning_effort":"low"`)), true, limits(), &wire.Model{})
	if err != nil || strings.Join(c.ignored, " ") != "reasoning_effort" {
		t.Errorf("a model without efforts: %v, ignored %v", err, c.ignored)
	}
}

// TestReasoningMayBeHidden, which changes nothing else.
func TestReasoningMayBeHidden(t *testing.T) {
	r := simpleRig(t, twoCalls)
	for _, stream := range []string{"", `,"stream":true`} {
		if resp := r.chat(weatherTools + `,"include_reasoning":false` + stream); resp.status != 200 || strings.Contains(resp.body, "reasoning_content") || !strings.Contains(resp.body, "look.") || !strings.Contains(resp.body, "call_2") {
			t.Error(resp.body)
		}
	}
}
