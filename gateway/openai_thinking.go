package gateway

import (
	"encoding/json"
	"slices"

	"github.com/forebay-io/forebay/internal/wire"
)

// thinkingNames are the members that say how much a model is to reason.
var thinkingNames = []string{"reasoning_effort", "enable_thinking", "think", "thinking", "thinking_budget", "thinking_token_budget", "reasoning", "include_reasoning"}

// effortNames are the amounts of reasoning that clients ask for, with those that
// templates know; "" is none at all.
var effortNames = map[string]string{"none": "", "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}

// thinkingFields reads how much the model is to reason, under the names of OpenAI
// (reasoning_effort, and reasoning as in Responses), vLLM and Qwen (enable_thinking,
// thinking_budget), DeepSeek (thinking) and Ollama (think).
func (c *call) thinkingFields(f *fields, request *wire.Request, m *wire.Model) {
	c.hideReasoning = !f.flagOr("include_reasoning", true)
	if _, given := f.given("enable_thinking"); given {
		request.Think = thinkIf(f.flag("enable_thinking"))
	}
	if raw, given := f.given("think"); given && isString(raw) {
		f.effort("think", raw, request)
	} else if given {
		request.Think = thinkIf(f.flag("think"))
	}
	if raw, given := f.given("thinking"); given {
		switch kind := string(member(raw, "type")); {
		case kind == `"enabled"` || kind == `"adaptive"`:
			request.Think = wire.ThinkOn
		case kind == `"disabled"`:
			request.Think = wire.ThinkOff
		default:
			f.fail("thinking", `thinking must be {"type":"enabled"} or {"type":"disabled"}`)
		}
		c.budget(f, "thinking.budget_tokens", member(raw, "budget_tokens"), request)
	}
	if raw, given := f.given("reasoning_effort"); given {
		f.effort("reasoning_effort", raw, request)
	}
	if raw, given := f.given("reasoning"); given {
		if !isObject(raw) {
			f.fail("reasoning", `reasoning must be an object, such as {"effort":"low"}`)
		}
		if effort := member(raw, "effort"); effort != nil && string(effort) != "null" {
			f.effort("reasoning.effort", effort, request)
		}
		c.budget(f, "reasoning.max_tokens", member(raw, "max_tokens"), request)
	}
	for _, name := range []string{"thinking_budget", "thinking_token_budget"} {
		raw, _ := f.given(name)
		c.budget(f, name, raw, request)
	}
	if request.Effort != "" && !m.Efforts {
		f.ignore([]byte("reasoning_effort"))
	}
}

func thinkIf(yes bool) wire.Think {
	if yes {
		return wire.ThinkOn
	}
	return wire.ThinkOff
}

// effort reads an amount of reasoning.
func (f *fields) effort(name string, raw json.RawMessage, request *wire.Request) {
	effort, known := "", false
	if isString(raw) {
		effort, known = effortNames[unquote(raw)]
	}
	switch {
	case !known:
		f.fail(name, "%s must be one of none, minimal, low, medium, high, xhigh", name)
	case effort == "":
		request.Think = wire.ThinkOff
	default:
		request.Think, request.Effort = wire.ThinkOn, effort
	}
}

// budget reads a limit on the tokens of reasoning; 0 turns it off, and -1 is no limit.
func (c *call) budget(f *fields, name string, raw json.RawMessage, request *wire.Request) {
	if raw == nil || string(raw) == "null" || string(raw) == "-1" {
		return
	}
	n := f.wholeOf(name, raw)
	switch {
	case n < 0:
		f.fail(name, "%s must be at least 0, or absent for no limit", name)
	case n == 0:
		request.Think = wire.ThinkOff
	default:
		c.options.ReasoningMax = n
	}
}

// withoutReasoning removes reasoning from an event, for a client that wants none.
func withoutReasoning(e *wire.Event) {
	e.Pieces = slices.DeleteFunc(slices.Clone(e.Pieces), func(p wire.Piece) bool { return p.Kind == wire.PieceReasoning })
}

// flagOr is flag with a default.
func (f *fields) flagOr(name string, absent bool) bool {
	if _, given := f.given(name); !given {
		return absent
	}
	return f.flag(name)
}
