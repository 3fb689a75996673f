package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/internal/wire"
)

// cities is a tool whose arguments end soon, whatever a model says.
const cities = `[{"type":"function","function":{"name":"weather","strict":true,"parameters":{"type":"object","properties":{"city":{"enum":["Rome","Oslo"]},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"],"additionalProperties":false}}}]`

// beginHeld begins an answer whose calls are held.
func (b *lab) beginHeld(h wire.HeldCalls, o wire.Options, templateOptions string) (*wire.Stream, chan struct{}, *wire.Error) {
	b.t.Helper()
	o.Split, o.N, o.Tools, o.CallsMax = true, 1, h.Tools, h.Most
	o.Grammar = &wire.Grammar{Kind: wire.GrammarCalls, Param: "tools", Calls: &h}
	r := &wire.Request{ID: "held", Tools: h.Tools, Grammar: o.Grammar, Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`)}
	if templateOptions != "" {
		r.TemplateOptions = json.RawMessage(templateOptions)
	}
	p, err := b.Prepare(context.Background(), r)
	if err != nil {
		return nil, nil, wire.AsError(err)
	}
	notify := make(chan struct{}, 1)
	return b.Generate(&wire.Generation{ID: fmt.Sprint("held", o.Seed), Prompt: p, Options: o, Notify: notify}), notify, nil
}

// heldTo asks for an answer whose calls are held.
func (b *lab) heldTo(h wire.HeldCalls, o wire.Options, templateOptions string) (answer, *wire.Error) {
	b.t.Helper()
	stream, notify, err := b.beginHeld(h, o, templateOptions)
	if err != nil {
		return answer{}, err
	}
	return b.read(stream, notify, 1), nil
}

// TestRequiredCalls: a model that says anything calls, in every format, and what it
// calls follows the schema.
func TestRequiredCalls(t *testing.T) {
	for _, format := range calls.Names() {
		b := newLab(t, labSetup{cfg: Config{ToolFormat: format}, template: plainTemplate})
		for seed := range uint64(3) {
			a, err := b.heldTo(wire.HeldCalls{Tools: json.RawMessage(cities), Required: true, Most: 1 + int(seed)}, wire.Options{Temperature: 1, Seed: seed, MaxTokens: 900, ReasoningMax: 20}, "")
			if err != nil || a.end.Err != nil {
				t.Fatalf("%s: %v %+v", format, err, a.end)
			}
			if a.finishes[0] != wire.FinishCalls || len(a.ids) == 0 || len(a.ids) > 1+int(seed) || b.State().CallFallbacks > 0 {
				t.Errorf("%s: %s with %d calls", format, a.shape(), len(a.ids))
			}
			for _, p := range a.pieces {
				var got struct {
					City string
					Days int
				}
				if p.Kind == wire.PieceArguments && (json.Unmarshal([]byte(p.Text), &got) != nil || got.City != "Rome" && got.City != "Oslo" || got.Days < 1 || got.Days > 9) {
					t.Errorf("%s: %s", format, p.Text)
				}
				if p.Kind == wire.PieceArguments && strings.Contains(p.Text, "\n") {
					t.Errorf("%s: %q has a line end", format, p.Text)
				}
				if p.Kind == wire.PieceContent && strings.TrimSpace(p.Text) != "" {
					t.Errorf("%s: says %q", format, p.Text)
				}
			}
		}
		b.mustIdle()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// notes is a tool with arguments of all kinds, which a model may fill as it likes.
const notes = `[{"type":"function","function":{"name":"note","strict":true,"parameters":{"type":"object","properties":{"text":{"type":"string","maxLength":24},"n":{"type":"number"},"done":{"type":"boolean"},"tags":{"type":"array","maxItems":3,"items":{"enum":["a","b"]}},"at":{"type":["string","null"],"format":"date"}},"required":["text","n"],"additionalProperties":false}}},` +
	`{"type":"function","function":{"name":"weather","strict":true,"parameters":{"type":"object","properties":{"city":{"type":"string","pattern":"^[A-Z][a-z]{1,8}$"}},"required":["city"],"additionalProperties":false}}}]`

// TestCallsOfARealModel: what the demo model says, held to its format, is read as calls without
// a fallback. FOREBAY_TEST_DRAWS sets how many answers are drawn.
func TestCallsOfARealModel(t *testing.T) {
	draws := uint64(20)
	if text := os.Getenv("FOREBAY_TEST_DRAWS"); text != "" {
		if _, err := fmt.Sscan(text, &draws); err != nil {
			t.Fatal(err)
		}
	}
	b := newDemo(t, Config{})
	whole, read := 0, 0
	const atOnce = 20
	for first := uint64(0); first < draws; first += atOnce {
		var begun [atOnce]func() answer
		for i := range begun {
			seed := first + uint64(i)
			stream, notify, err := b.beginHeld(wire.HeldCalls{Tools: json.RawMessage(notes), Required: true, Most: 1 + int(seed%3)}, wire.Options{Temperature: 1, Seed: seed, MaxTokens: 300}, "")
			if err != nil {
				t.Fatal(err)
			}
			begun[i] = func() answer { return b.read(stream, notify, 1) }
		}
		for i, rest := range begun {
			a := rest()
			if a.end.Err != nil || b.State().CallFallbacks > 0 {
				t.Fatalf("seed %d: %+v, %d fallbacks: %s", int(first)+i, a.end, b.State().CallFallbacks, a.shape())
			}
			if a.finishes[0] == wire.FinishCalls {
				whole++
			}
			read += checkNotes(t, &a)
		}
	}
	if whole < int(draws)*9/10 || read < whole {
		t.Errorf("of %d answers %d ended with a call, with %d calls", draws, whole, read)
	}
}

// checkNotes holds the calls of an answer to the schemas of notes, and counts them.
func checkNotes(t *testing.T, a *answer) (read int) {
	var arguments []string
	for _, p := range a.pieces {
		switch {
		case p.Kind == wire.PieceCall:
			arguments = append(arguments, "")
		case p.Kind == wire.PieceArguments:
			arguments[len(arguments)-1] += p.Text
		case p.Kind == wire.PieceContent && strings.TrimSpace(p.Text) != "":
			t.Errorf("says %q", p.Text)
		}
	}
	if a.finishes[0] != wire.FinishCalls && len(arguments) > 0 {
		arguments = arguments[:len(arguments)-1] // the last was cut
	}
	for _, text := range arguments {
		var got struct {
			Text, City *string
			N          *json.Number
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || (got.City == nil) == (got.Text == nil) || (got.N == nil) != (got.Text == nil) {
			t.Errorf("%s: %v", text, err)
		}
	}
	return len(arguments)
}

// TestReasoningBeforeRequiredCalls: reasoning that the prompt opens is closed, at the
// latest by its budget, and the call follows.
func TestReasoningBeforeRequiredCalls(t *testing.T) {
	b := newLab(t, labSetup{template: toolTemplate})
	a, err := b.heldTo(wire.HeldCalls{Tools: json.RawMessage(cities), Required: true, Most: 1}, wire.Options{Temperature: 1, MaxTokens: 900, ReasoningMax: 20}, `{"think":true}`)
	if err != nil || a.end.Err != nil || a.finishes[0] != wire.FinishCalls || a.end.Usage.Reasoning == 0 {
		t.Errorf("%v %+v %s", err, a.end, a.shape())
	}
}

// TestStrictToolsLeaveTheAnswerFree: a model that says what it wants says it, and a call
// follows its schema.
func TestStrictToolsLeaveTheAnswerFree(t *testing.T) {
	for text, want := range map[string]string{
		"Good day.": "Good day. stop",
		"I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}\n</tool_call>": `I look.|weather({"city": "Oslo", "days": 3}) calls`,
	} {
		b := spelled(t, toolTemplate, text)
		a, err := b.heldTo(wire.HeldCalls{Tools: json.RawMessage(cities)}, wire.Options{MaxTokens: 300}, "")
		if err != nil || a.end.Err != nil || a.shape() != want {
			t.Errorf("%v %+v %s", err, a.end, a.shape())
		}
	}
	// What the schema does not allow cannot be said.
	b := spelled(t, toolTemplate, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"")
	a, err := b.heldTo(wire.HeldCalls{Tools: json.RawMessage(cities)}, wire.Options{MaxTokens: 300}, "")
	if err != nil || a.end.Err != nil || strings.Contains(a.shape(), "Paris") || !strings.Contains(a.shape(), "|weather({\"city\":") {
		t.Errorf("%v %+v %s", err, a.end, a.shape())
	}
}

// TestToolsThatCannotBeEnforced: a strict one is refused by its place in the schema, and
// another is named.
func TestToolsThatCannotBeEnforced(t *testing.T) {
	b := newLab(t, labSetup{template: toolTemplate})
	tool := func(strict string) json.RawMessage {
		return json.RawMessage(`[{"type":"function","function":{"name":"weather","strict":` + strict + `,"parameters":{"type":"object","properties":{"city":{"type":"string","pattern":"(a)\\1"}}}}}]`)
	}
	_, err := b.heldTo(wire.HeldCalls{Tools: tool("true"), Required: true}, wire.Options{MaxTokens: 50}, "")
	if err == nil || err.Kind != wire.Invalid || err.Param != `tools["weather"].function.parameters` || !strings.Contains(err.Message, `tools["weather"].function.parameters/properties/city/pattern: `) {
		t.Errorf("%v", err)
	}
	_, err = b.heldTo(wire.HeldCalls{Tools: json.RawMessage(`[{"type":"function","function":{"name":"ok"}},{"type":"function","function":{"name":"never","strict":true,"parameters":{"type":"object","properties":{"s":{"$ref":"#"}},"required":["s"]}}}]`)}, wire.Options{MaxTokens: 50}, "")
	if err == nil || err.Param != `tools["never"].function.parameters` || !strings.Contains(err.Message, `tools["never"].function.parameters: nothing can match`) {
		t.Errorf("%v", err)
	}
	p, failed := b.Prepare(context.Background(), &wire.Request{ID: "x", Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`), Tools: tool("false"),
		Grammar: &wire.Grammar{Kind: wire.GrammarCalls, Param: "tools", Calls: &wire.HeldCalls{Tools: tool("false"), Required: true}}})
	if failed != nil || len(p.Unenforced) != 1 || p.Unenforced[0] != ".weather.parameters" {
		t.Errorf("%v %+v", failed, p)
	}
}

// TestFormOrCalls: an answer that is held to a form, or calls.
func TestFormOrCalls(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1}`: `{"a": 1} stop`,
		"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"days\": 1}}\n</tool_call>": `|weather({"city": "Rome", "days": 1}) calls`,
	} {
		b := spelled(t, toolTemplate, text)
		h := wire.HeldCalls{Tools: json.RawMessage(cities)}
		g := &wire.Grammar{Kind: wire.GrammarSchema, Text: `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`, Param: "f", Calls: &h}
		p, err := b.Prepare(context.Background(), &wire.Request{ID: "x", Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`), Tools: h.Tools, Grammar: g})
		if err != nil {
			t.Fatal(err)
		}
		notify := make(chan struct{}, 1)
		a := b.read(b.Generate(&wire.Generation{ID: "x", Prompt: p, Notify: notify, Options: wire.Options{N: 1, MaxTokens: 100, Split: true, Tools: h.Tools, Grammar: g}}), notify, 1)
		if a.end.Err != nil || a.shape() != want {
			t.Errorf("%+v %s", a.end, a.shape())
		}
	}
}
