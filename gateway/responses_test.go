package gateway

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

func responseBody(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"fake","input":"hi"` + extra + `}`
}

func decodeResponse(body string) (*call, *wire.Error) {
	return responsesCall([]byte(body), limits(), &wire.Model{})
}

// TestInputBecomesMessages: reasoning, text and calls of one answer are one message.
func TestInputBecomesMessages(t *testing.T) {
	for input, want := range map[string]string{
		`"hi"`: `[{"role":"user","content":"hi"}]`,
		`[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]`:                                         `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
		`[{"type":"message","role":"developer","content":[{"type":"input_text","text":"a\n"}]},{"role":"assistant","content":"b"}]`:               `[{"role":"developer","content":"a\n"},{"role":"assistant","content":"b"}]`,
		`[{"role":"user","content":"q"},{"type":"web_search_call","id":"ws"},{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}]`: `[{"role":"user","content":"q"},{"role":"assistant","content":"no"}]`,
		`[{"type":"reasoning","id":"rs","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I call."}]},
		  {"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"custom_tool_call","call_id":"c2","name":"say","input":"a\"b"},
		  {"type":"function_call_output","call_id":"c1","output":"one"},{"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]},{"role":"assistant","content":"so"},{"role":"assistant","content":"there"}]`: `[
			{"role":"assistant","content":"I call.","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"say","arguments":"{\"input\":\"a\\\"b\"}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":"two"},{"role":"assistant","content":"so"},{"role":"assistant","content":"there"}]`,
		`[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":{"a":1}}]`: `[
			{"role":"assistant","content":null,"reasoning_content":"s","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"{\"a\":1}"}]`,
	} {
		c, err := decodeResponse(`{"model":"fake","input":` + input + `}`)
		if err != nil {
			t.Errorf("%s: %v", input, err)
			continue
		}
		var got, due any
		if json.Unmarshal(c.prompts[0].Messages, &got) != nil || json.Unmarshal([]byte(want), &due) != nil {
			t.Fatalf("%s: %s", input, c.prompts[0].Messages)
		}
		if diff := cmp.Diff(due, got); diff != "" {
			t.Errorf("%s:\n%s", input, diff)
		}
	}
	c, err := decodeResponse(responseBody(`"instructions":"be \"brief\""`))
	if err != nil || string(c.prompts[0].Messages) != `[{"role":"system","content":"be \"brief\""},{"role":"user","content":"hi"}]` {
		t.Errorf("%v, %+v", err, c)
	}
}

// TestResponsesAreRefusedByName: each fault names the member that the client wrote.
func TestResponsesAreRefusedByName(t *testing.T) {
	for extra, param := range map[string]string{
		`"store":true`: "store", `"background":true`: "background", `"previous_response_id":"resp_1"`: "previous_response_id", `"conversation":"c"`: "conversation", `"prompt":{"id":"p"}`: "prompt",
		`"messages":[]`: "messages", `"response_format":{"type":"text"}`: "response_format", `"instructions":7`: "instructions", `"text":7`: "text", `"text":{"format":{"type":"odd"}}`: "text.format",
		`"text":{"format":{"type":"json_schema","name":"x"}}`: "text.format", `"reasoning":"high"`: "reasoning", `"reasoning":{"effort":"odd"}`: "reasoning.effort", `"include":7`: "include",
		`"tools":7`: "tools", `"tools":[{"type":"function"}]`: "tools[0]", `"tools":[{"type":"custom"}]`: "tools[0]", `"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}`: "tool_choice",
		`"tool_choice":"required","tools":[{"type":"web_search"}]`: "tool_choice", `"n":2`: "n", `"temperature":9`: "temperature", `"max_output_tokens":0`: "max_output_tokens", `"top_logprobs":21`: "top_logprobs",
	} {
		if _, err := decodeResponse(responseBody(extra)); err == nil || err.Param != param {
			t.Errorf("%s: %v, want param %s", extra, err, param)
		}
	}
	for input, param := range map[string]string{
		`[]`: "input", `7`: "input", `null`: "input", `[{"role":"odd","content":"x"}]`: "input[0].role", `[{"role":"user"}]`: "input[0].content", `[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]`: "input[0].content[0]",
		`[{"role":"user","content":"x"},{"type":"item_reference","id":"i"}]`: "input[1]", `[{"type":"odd"}]`: "input[0].type", `[{"type":"function_call","name":"f","arguments":"{}"}]`: "input[0]",
		`[{"type":"function_call_output","output":"x"}]`: "input[0].call_id", `[{"type":"function_call_output","call_id":"c"}]`: "input[0].output", `[{"type":"custom_tool_call","call_id":"c","name":"f"}]`: "input[0].input",
	} {
		if _, err := decodeResponse(`{"model":"fake","input":` + input + `}`); err == nil || err.Param != param {
			t.Errorf("input %s: %v, want param %s", input, err, param)
		}
	}
}

// TestToolsOfResponses: functions are flat, those of a namespace stand for themselves, and
// what another server would run is left out by name.
func TestToolsOfResponses(t *testing.T) {
	c, err := decodeResponse(responseBody(`"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"web_search"},{"type":"custom","name":"say","format":{"type":"grammar"}},
		{"type":"namespace","name":"mcp","tools":[{"type":"function","name":"g","parameters":null}]}],"tool_choice":{"type":"custom","name":"say"},"include":["message.output_text.logprobs","reasoning.encrypted_content"],
		"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"string"}},"verbosity":"low"},"safety_identifier":"x","max_output_tokens":9,"top_k":5,"reasoning":{"effort":"low","summary":"auto"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"f","description":"d","parameters":{"type":"object"},"strict":true`, `"name":"say"`, `"name":"g","parameters":null`} {
		if !strings.Contains(string(c.prompts[0].Tools), want) {
			t.Errorf("no %s in %s", want, c.prompts[0].Tools)
		}
	}
	want := []string{"include/reasoning.encrypted_content", "reasoning.summary", "reasoning_effort", "safety_identifier", "text.verbosity", "tools/custom/format", "tools/web_search"}
	if ignored := slices.Sorted(slices.Values(c.ignored)); !slices.Equal(ignored, want) {
		t.Errorf("ignored %v", ignored)
	}
	o := &c.options
	if g := o.Grammar; g == nil || g.Param != "text.format.schema" || !g.Strict || g.Text != `{"type":"string"}` || g.Calls == nil || !g.Calls.Required {
		t.Errorf("%+v", g)
	}
	if !o.Logprobs || o.MaxTokens != 9 || o.TopK != 5 || !c.responses.custom["say"] || c.responses.spaces["g"] != "mcp" {
		t.Errorf("%+v %+v", o, c.responses)
	}
}

// anEvent is what all events of a stream may have.
type anEvent struct {
	Type        string
	Sequence    *int   `json:"sequence_number"`
	OutputIndex int    `json:"output_index"`
	ItemID      string `json:"item_id"`
	Delta, Text string
	Arguments   string
	Input       string
	Item        anItem
	Response    *aResponse
	Logprobs    []any
}

type anItem struct {
	ID, Type, Status, Name, Arguments, Input string
	CallID                                   string `json:"call_id"`
	Content                                  []struct {
		Type, Text string
		Logprobs   []any
	}
}

type aResponse struct {
	ID, Status string
	Output     []anItem
	Error      *struct{ Code, Message string }
	Incomplete *struct{ Reason string } `json:"incomplete_details"`
	Usage      *struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
		Total  int `json:"total_tokens"`
	}
}

// follow reads a stream as the strictest clients do: numbers without gaps, events of items
// that were added and are not done, deltas that join to what the end says. It gives the last
// response, and the kinds of events.
func follow(t *testing.T, body string) (last *aResponse, kinds []string) {
	t.Helper()
	deltas := map[int]string{}
	added, done := -1, -1
	name := ""
	for _, line := range strings.Split(body, "\n") {
		if kind, ok := strings.CutPrefix(line, "event: "); ok {
			name = kind
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e anEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if e.Type != name {
			t.Errorf("the event %s has the type %s", name, e.Type)
		}
		if e.Sequence == nil || *e.Sequence != len(kinds) {
			t.Errorf("event %d has another number: %s", len(kinds), data)
		}
		kinds = append(kinds, e.Type)
		switch {
		case e.Type == "response.output_item.added":
			if added++; e.OutputIndex != added || done != added-1 || e.Item.Status != "in_progress" {
				t.Errorf("an item is added out of order: %s", data)
			}
		case e.Type == "response.output_item.done":
			if done++; e.OutputIndex != done || e.Item.ID == "" || e.Item.Status == "in_progress" {
				t.Errorf("an item is done out of order: %s", data)
			}
		case strings.HasSuffix(e.Type, ".delta"):
			if e.OutputIndex != added || done == added || e.ItemID == "" {
				t.Errorf("a delta of no item: %s", data)
			}
			deltas[added] += e.Delta
		case strings.HasSuffix(e.Type, ".done") && e.Type != "response.content_part.done":
			if e.Text+e.Arguments+e.Input != deltas[added] {
				t.Errorf("%q was sent, and the end is %s", deltas[added], data)
			}
		case e.Response != nil:
			last = e.Response
		}
	}
	return last, kinds
}

var responseTools = `"tools":[{"type":"function","name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}},{"type":"custom","name":"say"}]`

// mixed reasons, says something after white space, and calls a function and a custom tool.
var mixed = wiretest.Script{Finish: wire.FinishCalls, Split: [][]wire.Piece{
	{reasoning("Let me ")}, {reasoning("see.")}, {content("\n\n")}, {content("I look.")}, {content("\n")},
	{begins("call_1", "weather")}, {arguments(`{"city":`)}, {arguments(`"Rome"}`), ends}, {content("\n")}, {begins("call_2", "say"), arguments(`{"input": "a\"`), arguments(`b"}`), ends},
}}

func TestResponsesStreamedAndWhole(t *testing.T) {
	r := simpleRig(t, mixed)
	plain := r.do("POST", "/v1/responses", responseBody(responseTools))
	var whole aResponse
	if err := json.Unmarshal([]byte(plain.body), &whole); plain.status != 200 || err != nil {
		t.Fatalf("%d %v %s", plain.status, err, plain.body)
	}
	streamed := r.do("POST", "/v1/responses", responseBody(responseTools+`,"stream":true`))
	last, kinds := follow(t, streamed.body)
	want := "created in_progress output_item.added reasoning_text.delta reasoning_text.delta reasoning_text.done output_item.done " +
		"output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done " +
		"output_item.added function_call_arguments.delta function_call_arguments.delta function_call_arguments.done output_item.done " +
		"output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed"
	if got := strings.ReplaceAll(strings.Join(kinds, " "), "response.", ""); got != want {
		t.Errorf("events:\n%s\nwant:\n%s", got, want)
	}
	for name, one := range map[string]*aResponse{"plain": &whole, "streamed": last} {
		if one == nil || one.Status != "completed" || len(one.Output) != 4 || one.Usage == nil || one.Usage.Total != one.Usage.Input+one.Usage.Output || one.Usage.Output == 0 {
			t.Fatalf("%s: %+v", name, one)
		}
		o := one.Output
		if o[0].Type != "reasoning" || o[0].Content[0].Text != "Let me see." || o[1].Type != "message" || o[1].Content[0].Text != "\n\nI look.\n" ||
			o[2].Type != "function_call" || o[2].CallID != "call_1" || o[2].Arguments != `{"city":"Rome"}` || o[3].Type != "custom_tool_call" || o[3].Input != `a"b` || o[3].CallID != "call_2" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	r.settled()
	if rec := r.recorder.Last(1)[0]; rec.Route != "responses" || rec.ToolCalls != 2 || rec.FirstWrite == 0 {
		t.Errorf("recorded %+v", rec)
	}
}

// TestNoFieldOfResponsesIsSilent: each that OpenAI documents is read, named as ignored, or
// refused by its name.
func TestNoFieldOfResponsesIsSilent(t *testing.T) {
	r := simpleRig(t, hello)
	read := 0
	for field, value := range map[string]string{
		"background": `true`, "conversation": `"c"`, "context_management": `[{"type":"compaction"}]`, "include": `["file_search_call.results"]`, "instructions": `"x"`, "max_output_tokens": `5`,
		"max_tool_calls": `2`, "metadata": `{"a":"b"}`, "parallel_tool_calls": `false`, "previous_response_id": `"r"`, "prompt": `{"id":"p"}`, "prompt_cache_key": `"k"`, "prompt_cache_retention": `"24h"`,
		"reasoning": `{"effort":"low"}`, "safety_identifier": `"s"`, "service_tier": `"flex"`, "store": `true`, "stream": `true`, "stream_options": `{"include_obfuscation":false}`, "temperature": `0.5`,
		"text": `{"format":{"type":"json_object"}}`, "tool_choice": `"none"`, "tools": `[{"type":"file_search"}]`, "top_logprobs": `2`, "top_p": `0.5`, "truncation": `"auto"`, "user": `"u"`, "verbosity": `"low"`, "modalities": `["audio"]`,
	} {
		got := r.do("POST", "/v1/responses", responseBody(`"`+field+`":`+value))
		param := ""
		if got.status == 400 {
			_, param = errorOf(t, got.body)
		}
		switch ignored := strings.Split(got.header.Get(ignoredHeader), ", "); {
		case got.status == 400 && param == field:
		case got.status == 200 && slices.ContainsFunc(ignored, func(s string) bool { return s == field || strings.HasPrefix(s, field+"/") }):
		case got.status == 200 && knownResponses[field]:
			read++
		default:
			t.Errorf("%s is silent: %d %s", field, got.status, got.body)
		}
	}
	if read < 10 {
		t.Errorf("only %d fields were read", read)
	}
}

func TestResponsesEndings(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Pieces: []string{"a", "b", "c"}})
	for _, stream := range []string{"", `,"stream":true`} {
		got := r.do("POST", "/v1/responses", responseBody(`"max_output_tokens":2,"include":["message.output_text.logprobs"]`+stream))
		var one *aResponse
		if stream == "" {
			if err := json.Unmarshal([]byte(got.body), &one); err != nil {
				t.Fatal(err)
			}
		} else {
			one, _ = follow(t, got.body)
		}
		if one.Status != "incomplete" || one.Incomplete == nil || one.Incomplete.Reason != "max_output_tokens" || one.Output[0].Status != "incomplete" || one.Output[0].Content[0].Text != "ab" || len(one.Output[0].Content[0].Logprobs) != 2 {
			t.Errorf("cut, stream %q: %+v", stream, one)
		}
	}
	r = simpleRig(t, wiretest.Script{})
	if one, _ := follow(t, r.do("POST", "/v1/responses", responseBody(`"stream":true`)).body); one.Status != "completed" || len(one.Output) != 1 || one.Output[0].Type != "message" {
		t.Errorf("nothing said: %+v", one)
	}
	r = simpleRig(t, wiretest.Script{Pieces: []string{"a", "b", "c"}, Delay: time.Millisecond, Err: wire.Errorf(wire.NonFinite, "numbers")})
	one, kinds := follow(t, r.do("POST", "/v1/responses", responseBody(`"stream":true`)).body)
	if kinds[0] != "response.created" || kinds[len(kinds)-1] != "response.failed" || one.Status != "failed" || one.Error == nil || one.Error.Code != "non_finite_output" || one.Output[0].Content[0].Text != "abc" {
		t.Errorf("failed: %v %+v", kinds, one)
	}
	if got := r.do("POST", "/v1/responses", responseBody("")); got.status != 500 {
		t.Errorf("failed, not streamed: %d %s", got.status, got.body)
	}
	if got := r.do("POST", "/v1/responses", `{"model":"other","input":"hi","stream":true}`); got.status != 404 {
		t.Errorf("another model: %d", got.status)
	}
	r.settled()
}

// TestResponsesOfAnotherServer: what it sent as deltas of a chat becomes items.
func TestResponsesOfAnotherServer(t *testing.T) {
	c, err := responsesCall([]byte(responseBody(`"stream":true,"max_output_tokens":7,"reasoning":{"effort":"low"},`+responseTools)), limits(), &wire.Model{Relays: true})
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Messages []any
		Tools    []any
		Input    any
		Most     int    `json:"max_completion_tokens"`
		Effort   string `json:"reasoning_effort"`
	}
	if err := json.Unmarshal(c.prompts[0].Body, &sent); err != nil || len(sent.Messages) != 1 || len(sent.Tools) != 2 || sent.Input != nil || sent.Most != 7 || sent.Effort != "low" {
		t.Errorf("the other server gets %s", c.prompts[0].Body)
	}
	r := &responseState{responses: c.responses, id: "resp_1", stream: true}
	r.spelling = r
	b := r.begin(nil)
	for _, delta := range []string{`"reasoning_content":"hm"`, `"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"weather","arguments":""}}]`,
		`"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]`, `"tool_calls":[{"index":1,"id":"b","function":{"name":"weather","arguments":"{\"city\":1}"}}]`} {
		b = r.relay(b, &wire.Relayed{Delta: []byte(delta)})
	}
	b = r.end(b)
	follow(t, string(b))
	got := fmt.Sprint(len(r.all))
	for _, item := range r.all {
		got += fmt.Sprint(" ", item.kind, item.callID, string(item.text))
	}
	if got != `3 1hm 2a{} 2b{"city":1}` {
		t.Error(got)
	}
}
