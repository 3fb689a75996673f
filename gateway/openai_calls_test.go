package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

const weatherTools = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`

func reasoning(text string) wire.Piece { return wire.Piece{Kind: wire.PieceReasoning, Text: text} }
func arguments(text string) wire.Piece { return wire.Piece{Kind: wire.PieceArguments, Text: text} }
func content(text string) wire.Piece   { return wire.Piece{Kind: wire.PieceContent, Text: text} }
func begins(id, name string) wire.Piece {
	return wire.Piece{Kind: wire.PieceCall, ID: id, Name: name}
}

var ends = wire.Piece{Kind: wire.PieceCallEnd}

// twoCalls reasons, says something, and calls twice.
var twoCalls = wiretest.Script{Finish: wire.FinishCalls, Split: [][]wire.Piece{
	{reasoning("Let me ")}, {reasoning("see.")}, {content("I "), reasoning("x"), content("look.")}, {},
	{begins("call_1", "weather")}, {arguments(`{"city":`)}, {arguments(`"Rome"}`), ends}, {begins("call_2", "weather"), arguments("{}"), ends},
}}

// message is an answer's message, or the sum of a stream's deltas.
type message struct {
	Role             string
	Content          *string
	Reasoning        string
	ReasoningContent string `json:"reasoning_content"`
	ToolCalls        []struct {
		Index    *int
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

func TestCallsOfAPlainAnswer(t *testing.T) {
	r := simpleRig(t, twoCalls)
	resp := r.chat(weatherTools)
	var answer struct {
		Choices []struct {
			Message message
			Finish  string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(resp.body), &answer); err != nil || len(answer.Choices) != 1 {
		t.Fatalf("%v: %s", err, resp.body)
	}
	m := answer.Choices[0].Message
	if answer.Choices[0].Finish != "tool_calls" || m.Content == nil || *m.Content != "I look." || m.Reasoning != "Let me see.x" || m.ReasoningContent != m.Reasoning || len(m.ToolCalls) != 2 {
		t.Fatalf("%s", resp.body)
	}
	if c := m.ToolCalls[0]; c.ID != "call_1" || c.Type != "function" || c.Function.Name != "weather" || c.Function.Arguments != `{"city":"Rome"}` {
		t.Errorf("%+v", c)
	}
	r.settled()
	rec := r.recorder.Last(1)[0]
	if asked, _ := r.fake.Record(rec.ID); !asked.Options.Split {
		t.Error("the engine was not asked to split the answer")
	}
	if rec.ToolCalls != 2 || rec.FirstToken == 0 || rec.Finishes[0] != wire.FinishCalls {
		t.Errorf("recorded %+v", rec)
	}
}

// TestContentIsNullBesideCalls, as OpenAI has it.
func TestContentIsNullBesideCalls(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Finish: wire.FinishCalls, Split: [][]wire.Piece{{begins("a", "weather"), arguments("{}"), ends}}})
	if resp := r.chat(weatherTools); !strings.Contains(resp.body, `"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"weather","arguments":"{}"}}],"refusal":null}`) {
		t.Error(resp.body)
	}
	stream := r.chat(weatherTools + `,"stream":true`)
	want := []string{
		`{"role":"assistant","content":null}`,
		`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"weather","arguments":""}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`,
		`{}`,
	}
	all := events(stream.body)
	if len(all) != len(want)+1 || all[len(want)] != "[DONE]" {
		t.Fatal(stream.body)
	}
	for i, delta := range want {
		if !strings.Contains(all[i], `"delta":`+delta+`,`) {
			t.Errorf("chunk %d is %s; want the delta %s", i, all[i], delta)
		}
	}
	if !strings.Contains(all[3], `"finish_reason":"tool_calls"`) {
		t.Error(all[3])
	}
}

// TestStreamedCallsJoin: the deltas join to what a plain answer has, in the way that
// clients join them, with log-probabilities once each.
func TestStreamedCallsJoin(t *testing.T) {
	r := simpleRig(t, twoCalls)
	stream := r.chat(weatherTools + `,"stream":true,"logprobs":true`)
	var sum message
	said, logprobs, finish := "", 0, ""
	for _, data := range events(stream.body) {
		var chunk struct {
			Choices []struct {
				Delta    message
				Logprobs struct{ Content []any }
				Finish   string `json:"finish_reason"`
			}
		}
		if data == "[DONE]" {
			break
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 {
			t.Fatalf("%v: %s", err, data)
		}
		d := chunk.Choices[0].Delta
		logprobs += len(chunk.Choices[0].Logprobs.Content)
		finish += chunk.Choices[0].Finish
		sum.Reasoning += d.Reasoning
		if d.Content != nil {
			said += *d.Content
		}
		for _, call := range d.ToolCalls {
			switch {
			case call.Index == nil || *call.Index > len(sum.ToolCalls):
				t.Fatalf("index of %s", data)
			case *call.Index == len(sum.ToolCalls):
				if call.ID == "" || call.Type != "function" || call.Function.Name == "" {
					t.Errorf("a call begins with %s", data)
				}
				sum.ToolCalls = append(sum.ToolCalls, call)
			default:
				sum.ToolCalls[*call.Index].Function.Arguments += call.Function.Arguments
			}
		}
	}
	if said != "I look." || sum.Reasoning != "Let me see.x" || finish != "tool_calls" || logprobs != len(twoCalls.Split) || len(sum.ToolCalls) != 2 ||
		sum.ToolCalls[0].Function.Arguments != `{"city":"Rome"}` || sum.ToolCalls[1].ID != "call_2" || sum.ToolCalls[1].Function.Arguments != "{}" {
		t.Errorf("%q, %d log-probabilities, %q, %+v", said, logprobs, finish, sum)
	}
}

// TestToolChoice: what the engine is asked for.
func TestToolChoice(t *testing.T) {
	for _, c := range []struct {
		fields   string
		shown    bool // to the model
		may, not bool
		most     int
	}{
		{"", false, false, false, 0},
		{weatherTools, true, true, false, 0},
		{weatherTools + `,"tool_choice":"auto","parallel_tool_calls":true`, true, true, false, 0},
		{weatherTools + `,"tool_choice":"none"`, true, false, true, 0},
		{weatherTools + `,"parallel_tool_calls":false`, true, true, false, 1},
		{`"tools":[],"tool_choice":"none"`, false, false, false, 0},
	} {
		o := decodeText(t, chatBody(c.fields), true)
		if shown, may := o.prompts[0].Tools != nil, o.options.Tools != nil; shown != c.shown || may != c.may || o.options.NoCalls != c.not || o.options.CallsMax != c.most || !o.options.Split {
			t.Errorf("%s: shown %v, %+v", c.fields, shown, o.options)
		}
	}
	two := `"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}]`
	for choice, want := range map[string]wire.HeldCalls{
		`"required"`: {Required: true}, `"any"`: {Required: true},
		`{"type":"function","function":{"name":"b"}}`: {Required: true, Most: 1}, `{"type":"function","name":"b"}`: {Required: true, Most: 1},
		`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"b"}}]}}`: {},
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"b"}]}`:                            {Required: true},
	} {
		o := decodeText(t, chatBody(two+`,"tool_choice":`+choice), true)
		if len(choice) > len(`"required"`) {
			want.Tools = json.RawMessage(`[{"type":"function","function":{"name":"b"}}]`)
		} else {
			want.Tools = json.RawMessage(strings.TrimPrefix(two, `"tools":`))
		}
		g := o.options.Grammar
		if g == nil || g.Kind != wire.GrammarCalls || g.Param != "tools" || string(g.Calls.Tools) != string(want.Tools) || g.Calls.Required != want.Required || g.Calls.Most != want.Most ||
			string(o.options.Tools) != string(want.Tools) || o.options.CallsMax != want.Most || string(o.prompts[0].Tools) != strings.TrimPrefix(two, `"tools":`) || o.prompts[0].Grammar != g {
			t.Errorf("%s: %+v", choice, g)
		}
	}
	strict := decodeText(t, chatBody(`"tools":[{"type":"function","function":{"name":"a","strict":true}}],"response_format":{"type":"json_object"}`), true)
	loose := decodeText(t, chatBody(weatherTools+`,"response_format":{"type":"json_object"}`), true)
	if g := loose.options.Grammar; g.Kind != wire.GrammarObject || g.Calls == nil || g.Calls.Required || loose.prompts[0].Grammar != g {
		t.Errorf("calls beside a form are free text: %+v", g)
	}
	if g := strict.options.Grammar; g.Kind != wire.GrammarObject || g.Calls == nil || g.Calls.Required || len(strict.ignored) > 0 {
		t.Errorf("a form and strict tools: %+v, ignored %v", g, strict.ignored)
	}
	for fields, param := range map[string]string{
		`"tool_choice":"required"`: "tool_choice", two + `,"tool_choice":"maybe"`: "tool_choice", two + `,"tool_choice":{"type":"function","function":{"name":"c"}}`: "tool_choice",
		two + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`: "tool_choice", two + `,"tool_choice":"required","stop":"x"`: "stop",
		`"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]`: "tools[1].function.name",
		`"tools":[{"type":"function","function":{"name":"a b"}}]`:                                           "tools[0].function.name",
		`"tools":[{"type":"function","function":{"name":"` + strings.Repeat("n", 129) + `"}}]`:              "tools[0].function.name",
		`"tools":[{"type":"function","function":{"name":"f","strict":"yes"}}]`:                              "tools[0].function.strict",
		`"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]`:                             "tools[0].function.parameters",
		`"messages":[{"role":"assistant","tool_calls":{}}]`:                                                 "messages[0].tool_calls",
		`"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]`:                                       "messages[0].tool_calls[0]",
		`"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}]`:          "messages[0].tool_calls[0]",
		`"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"function":"f"}]}]`:   "messages[1].tool_calls[0]",
	} {
		if _, err := decodeCall([]byte(chatBody(fields)), true, limits(), &wire.Model{}); err == nil || err.Param != param {
			t.Errorf("%s: %v, want param %s", fields, err, param)
		}
	}
}
