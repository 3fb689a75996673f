package engine

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// toolTemplate is a ChatML template with a place for tools, and calls as hermes has them.
const toolTemplate = `{%- if tools %}<|im_start|>system
Tools:{% for t in tools %}
{{ t | tojson }}{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if think %}<think>
{% endif %}{% endif %}`

// plainTemplate has no place for tools.
const plainTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
`

const weather = `[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`

// spelled is a lab that answers every prompt with text and then the end token.
func spelled(t *testing.T, template, text string) *lab {
	t.Helper()
	var ids []int32
	b := newLab(t, labSetup{template: template, onLogits: func(s *sequence, x []float32) {
		if s.generated < len(ids) {
			if id := ids[s.generated]; !math.IsInf(float64(x[id]), -1) { // it may come
				x[id] = 1e6
			}
		}
	}})
	tok := b.loaded.tokenizer
	ids = append(tok.Encode(nil, text, tokenizer.EncodeOptions{}), tok.EOS())
	return b
}

// converse asks the lab with messages of one user.
func (b *lab) converse(options wire.Options, tools, templateOptions string) (answer, *wire.Error) {
	b.t.Helper()
	r := &wire.Request{ID: "chat", Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`)}
	if tools != "" {
		r.Tools = json.RawMessage(tools)
		if !options.NoCalls {
			options.Tools = r.Tools
		}
	}
	if templateOptions != "" {
		r.TemplateOptions = json.RawMessage(templateOptions)
	}
	p, err := b.Prepare(context.Background(), r)
	if err != nil {
		return answer{}, wire.AsError(err)
	}
	options.N, options.Split = max(1, options.N), true
	if options.MaxTokens == 0 {
		options.MaxTokens = 200
	}
	notify := make(chan struct{}, 1)
	return b.read(b.Generate(&wire.Generation{ID: "chat", Prompt: p, Options: options, Notify: notify}), notify, options.N), nil
}

// shape writes an answer's first choice in one line: text, reasoning in (), calls
// as name(arguments), a call that did not end with …, and the finish.
func (a *answer) shape() string {
	var b strings.Builder
	open := false
	for _, p := range a.pieces {
		switch p.Kind {
		case wire.PieceContent:
			b.WriteString(p.Text)
		case wire.PieceReasoning:
			b.WriteString("(" + p.Text + ")")
		case wire.PieceCall:
			b.WriteString("|" + p.Name + "(")
			open = true
		case wire.PieceArguments:
			b.WriteString(p.Text)
		case wire.PieceCallEnd:
			b.WriteString(")")
			open = false
		}
	}
	if open {
		b.WriteString("…")
	}
	return b.String() + " " + [...]string{"none", "stop", "length", "calls"}[a.finishes[0]]
}

const romeCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Röm\"}}\n</tool_call>"

func TestAnswersAreSplit(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		tools   string
		options wire.Options
		think   bool
		want    string
	}{
		"content":                     {"Good day.", weather, wire.Options{}, false, "Good day. stop"},
		"a call":                      {romeCall, weather, wire.Options{}, false, `|weather({"city": "Röm"}) calls`},
		"content and two calls":       {"I look.\n" + romeCall + "\n" + romeCall, weather, wire.Options{}, false, `I look.|weather({"city": "Röm"})|weather({"city": "Röm"}) calls`},
		"one call at most":            {"I look.\n" + romeCall + "\n" + romeCall, weather, wire.Options{CallsMax: 1}, false, `I look.|weather({"city": "Röm"}) calls`},
		"no tools, so no calls":       {romeCall, "", wire.Options{}, false, romeCall + " stop"},
		"tools that may not be used":  {romeCall, weather, wire.Options{NoCalls: true}, false, romeCall + " stop"},
		"reasoning":                   {"<think>\nhm, é\n</think>\n\nYes.", "", wire.Options{}, false, "(hm, é)Yes. stop"},
		"reasoning that is open":      {"hm</think>Yes." + romeCall, weather, wire.Options{}, true, `(hm)Yes.|weather({"city": "Röm"}) calls`},
		"a stop in the content":       {"<think>END</think>Yes.END" + romeCall, weather, wire.Options{Stop: []string{"END"}}, false, "(END)Yes. stop"},
		"a stop in the arguments":     {romeCall, weather, wire.Options{Stop: []string{"city", "Rö", "}}"}}, false, `|weather({"city": "Röm"}) calls`},
		"a stop after a call":         {romeCall + " soEND", weather, wire.Options{Stop: []string{"END"}}, false, `|weather({"city": "Röm"}) so calls`},
		"the beginning of a stop":     {"Yes. EN" + romeCall, weather, wire.Options{Stop: []string{"END"}}, false, `Yes. EN|weather({"city": "Röm"}) calls`},
		"what only looks like a call": {"a <tool_cal> b", weather, wire.Options{}, false, "a <tool_cal> b stop"},
		"no JSON":                     {"<tool_call>\nwhat?\n</tool_call>", weather, wire.Options{}, false, "<tool_call>\nwhat?\n</tool_call> stop"},
	} {
		t.Run(name, func(t *testing.T) {
			b := spelled(t, toolTemplate, c.text)
			templateOptions := ""
			if c.think {
				templateOptions = `{"think":true}`
			}
			a, err := b.converse(c.options, c.tools, templateOptions)
			if err != nil || a.end.Err != nil {
				t.Fatal(err, a.end)
			}
			if got := a.shape(); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if thought := strings.Contains(c.want, "("+"hm") || strings.Contains(c.want, "(END"); (a.end.Usage.Reasoning > 0) != thought || a.end.Usage.Reasoning > a.end.Usage.Completion {
				t.Errorf("usage %+v", a.end.Usage)
			}
			if broken := strings.Contains(c.text, "what?"); (b.State().CallFallbacks > 0) != broken {
				t.Errorf("%d fallbacks", b.State().CallFallbacks)
			}
			b.mustIdle()
		})
	}
}

// TestCallIsCutByLength: what there is of a call is sent, and the finish says why.
func TestCallIsCutByLength(t *testing.T) {
	b := spelled(t, toolTemplate, romeCall)
	whole := len(b.loaded.tokenizer.Encode(nil, romeCall, tokenizer.EncodeOptions{}))
	for n := 1; n < whole; n++ {
		a, err := b.converse(wire.Options{MaxTokens: n}, weather, "")
		if err != nil || a.end.Err != nil || a.finishes[0] != wire.FinishLength || a.end.Usage.Completion != n {
			t.Fatalf("%d tokens: %v %v %s %+v", n, err, a.end.Err, a.shape(), a.end.Usage)
		}
		got := strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(a.shape(), " length"), "…"), "\ufffd") // of a character that is cut
		if !strings.HasPrefix(`|weather({"city": "Röm"})`, got) && !strings.HasPrefix("<tool_call>", got) {
			t.Errorf("%d tokens: %q", n, a.shape())
		}
	}
}

// TestLogprobsOfASplitAnswer: each token has its log-probability once, in order, with
// or without a call, and none stands after a stop text.
func TestLogprobsOfASplitAnswer(t *testing.T) {
	for text, stop := range map[string][]string{
		"<think>why</think>I look. " + romeCall: nil, "plain text": nil, "<tool_cal no": {"XX"}, romeCall: nil, "abc END def": {"END"},
	} {
		b := spelled(t, toolTemplate, text)
		ids := b.loaded.tokenizer.Encode(nil, text, tokenizer.EncodeOptions{})
		if stop != nil && strings.Contains(text, stop[0]) {
			ids = b.loaded.tokenizer.Encode(nil, strings.TrimSuffix(text[:strings.Index(text, stop[0])], " "), tokenizer.EncodeOptions{})
		}
		a, err := b.converse(wire.Options{Logprobs: true, Stop: stop}, weather, "")
		if err != nil || len(a.logprobs[0]) < len(ids) || stop == nil && len(a.logprobs[0]) != len(ids) {
			t.Fatalf("%q: %v, %d log-probabilities of %d tokens", text, err, len(a.logprobs[0]), len(ids))
		}
		for i, id := range ids {
			if a.logprobs[0][i].ID != id {
				t.Errorf("%q: log-probability %d is of token %d, want %d", text, i, a.logprobs[0][i].ID, id)
			}
		}
	}
}

// TestCallIDs: choices and requests have ids of their own.
func TestCallIDs(t *testing.T) {
	b := spelled(t, toolTemplate, romeCall+romeCall)
	seen := map[string]bool{}
	a, err := b.converse(wire.Options{N: 3}, weather, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range a.ids {
		if seen[id] || !strings.HasPrefix(id, "call_") {
			t.Errorf("id %q", id)
		}
		seen[id] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d ids of 3 choices with 2 calls", len(seen))
	}
}

func TestToolsWithoutAPlace(t *testing.T) {
	b := spelled(t, plainTemplate, "x")
	_, err := b.converse(wire.Options{}, weather, "")
	if err == nil || err.Kind != wire.Invalid || err.Param != "tools" || !strings.Contains(err.Message, "no place for tools") {
		t.Errorf("%v", err)
	}
}

// TestTokensOfCallsAreForbidden where tool_choice is none.
func TestTokensOfCallsAreForbidden(t *testing.T) {
	b := spelled(t, toolTemplate, "x")
	end := b.loaded.tokenizer.EOS()
	b.loaded.speech.banned = []int32{end}
	b.onLogits = func(s *sequence, x []float32) { x[end], x[300] = 100, 50 }
	for _, no := range []bool{false, true} {
		a, err := b.converse(wire.Options{NoCalls: no, MaxTokens: 3}, weather, "")
		if err != nil || (a.finishes[0] == wire.FinishLength) != no {
			t.Errorf("forbidden %v: %v, %s", no, err, a.shape())
		}
	}
}

// TestTemplatesThatTakeTools renders a conversation with tools by every real template
// that has a place for them.
func TestTemplatesThatTakeTools(t *testing.T) {
	const folder = "../../shared/conformance/templates/"
	files, _ := filepath.Glob(folder + "*.json")
	if len(files) == 0 {
		t.Skip("test data is missing: " + folder)
	}
	b := newLab(t, labSetup{cfg: Config{ContextTokens: 8192}})
	took := 0
	for _, file := range files {
		var ref struct{ Template string }
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &ref) != nil {
			t.Fatal(file, err)
		}
		b.loaded.loadTemplate(b.loaded.chatConfig(ref.Template))
		if b.loaded.template == nil {
			continue
		}
		p, failed := b.Prepare(context.Background(), &wire.Request{ID: "x", Tools: json.RawMessage(weather), Messages: json.RawMessage(`[{"role":"user","content":"hi"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"call_0123456789","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}},
				{"id":"call_9","type":"function","function":{"name":"weather","arguments":{"city":"Oslo"}}}]},
			{"role":"tool","tool_call_id":"call_9","content":"rainy"},
			{"role":"tool","tool_call_id":"call_0123456789","content":"sunny"}]`)})
		if b.loaded.speech.noPlace != nil {
			if failed == nil || wire.AsError(failed).Param != "tools" {
				t.Errorf("%s: %v", file, failed)
			}
			continue
		}
		took++
		if failed != nil {
			t.Errorf("%s: %v", file, failed)
		} else if lacks(p.Text, "sunny", "rainy", "Rome", "Oslo") || strings.Count(p.Text, "weather") < 3 || p.Calls != 2 {
			t.Errorf("%s: %d calls: %s", file, p.Calls, p.Text)
		}
	}
	if took < 20 {
		t.Errorf("%d templates took tools", took)
	}
}

// lacks reports whether text lacks one of words.
func lacks(text string, words ...string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// TestToolFormat: a template without a place for tools gets one from the configuration,
// in every format.
func TestToolFormat(t *testing.T) {
	for _, template := range []string{plainTemplate, strings.Replace(plainTemplate, "{% for m", "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m", 1)} {
		for _, format := range calls.Names() {
			if format == "harmony" {
				continue // calls of gpt-oss need its own template
			}
			b := newLab(t, labSetup{cfg: Config{ToolFormat: format}, template: template})
			p, err := b.Prepare(context.Background(), &wire.Request{ID: "x", Tools: json.RawMessage(weather), Messages: json.RawMessage(`[{"role":"user","content":"hi"},
				{"role":"assistant","content":"I look.","tool_calls":[{"id":"a","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]},
				{"role":"tool","tool_call_id":"a","content":"sunny"},{"role":"user","content":"And?"}]`)})
			if err != nil {
				t.Fatalf("%s: %v", format, err)
			}
			written := calls.Lookup(format).Write([]calls.Call{{ID: "a", Name: "weather", Arguments: `{"city": "Rome"}`}}, 0)
			if lacks(p.Text, "You can call", `{"name":"weather"`, "I look.\n"+written, "<tool_response>\nsunny\n</tool_response>\nAnd?") {
				t.Errorf("%s: %s", format, p.Text)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := (&Config{ToolFormat: "hermse"}).fill(); err == nil || !strings.Contains(err.Error(), "hermes") {
		t.Error(err)
	}
}
