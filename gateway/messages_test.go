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

func messageBody(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"fake","max_tokens":64,"messages":[{"role":"user","content":"hi"}]` + extra + `}`
}

// TestBlocksBecomeMessages: results of tools are messages of their own, before what the user says.
func TestBlocksBecomeMessages(t *testing.T) {
	for body, want := range map[string]string{
		`"messages":[{"role":"user","content":"hi"}]`: `[{"role":"user","content":"hi"}]`,
		`"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`: `[
			{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`,
		`"system":"s","messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look."},
			{"type":"tool_use","id":"t1","name":"f","input":{"a": "b\""}},{"type":"tool_use","id":"t2","name":"g","input":{}}]},
			{"role":"user","content":[{"type":"text","text":"so?"},{"type":"tool_result","tool_use_id":"t1","content":"one"},{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"two"}]},{"type":"tool_result","tool_use_id":"t3"}]}]`: `[
			{"role":"system","content":"s"},{"role":"user","content":"q"},
			{"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\": \"b\\\"\"}"}},{"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},
			{"role":"tool","content":"one","tool_call_id":"t1"},{"role":"tool","content":"two","tool_call_id":"t2"},{"role":"tool","content":"","tool_call_id":"t3"},{"role":"user","content":"so?"}]`,
		`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"}}]},{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]}]},{"role":"user","content":"x"}]`: `[
			{"role":"user","content":"d"},{"role":"assistant","content":null},{"role":"user","content":"x"}]`,
	} {
		c, err := messagesCall([]byte(`{"model":"fake","max_tokens":9,`+body+`}`), limits(), &wire.Model{})
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		var got, due any
		if json.Unmarshal(c.prompts[0].Messages, &got) != nil || json.Unmarshal([]byte(want), &due) != nil {
			t.Fatalf("%s: %s", body, c.prompts[0].Messages)
		}
		if diff := cmp.Diff(due, got); diff != "" {
			t.Errorf("%s:\n%s", body, diff)
		}
		if c.prompts[0].Continue {
			t.Errorf("%s: the answer goes on with the last message", body)
		}
	}
	c, err := messagesCall([]byte(`{"model":"fake","max_tokens":9,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"text","text":"I"}]}]}`), limits(), &wire.Model{})
	if err != nil || !c.prompts[0].Continue {
		t.Errorf("the answer does not go on with the assistant's message: %v", err)
	}
}

// TestMessagesAreRefusedByName: each fault names the member that the client wrote.
func TestMessagesAreRefusedByName(t *testing.T) {
	for extra, param := range map[string]string{
		`"system":7`: "system", `"system":[{"type":"image"}]`: "system[0]", `"max_tokens":0`: "max_tokens", `"stop_sequences":7`: "stop_sequences", `"stop":["x"]`: "stop", `"response_format":{"type":"text"}`: "response_format",
		`"tools":7`: "tools", `"tools":[{"name":"f"}]`: "tools[0]", `"tools":[{"name":"a b","input_schema":{}}]`: "tools[0].name", `"tool_choice":{"type":"odd"}`: "tool_choice", `"tool_choice":{"type":"any"}`: "tool_choice",
		`"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}`: "tool_choice", `"tool_choice":{"type":"auto","disable_parallel_tool_use":1}`: "tool_choice.disable_parallel_tool_use",
		`"thinking":{"type":"odd"}`: "thinking", `"output_config":7`: "output_config", `"output_config":{"effort":"odd"}`: "output_config.effort", `"output_format":{"type":"text"}`: "output_config.format",
		`"n":2`: "n", `"temperature":9`: "temperature", `"service_tier":"odd"`: "service_tier", `"messages":[]`: "messages", `"messages":7`: "messages", `"messages":[{"role":"tool","content":"x"}]`: "messages[0].role",
		`"messages":[{"role":"user"}]`: "messages[0].content", `"messages":[{"role":"user","content":[]}]`: "messages[0].content", `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"x"}}]}]`: "messages[0].content[0]",
		`"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"f"}]}]`: "messages[0].content[0]", `"messages":[{"role":"user","content":[{"type":"tool_result"}]}]`: "messages[0].content[0].tool_use_id",
		`"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":7}]}]`:                                               "messages[0].content[0].content",
		`"output_config":{"format":{"type":"json_schema","schema":{}}},"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"{"}]`: "a last message of the assistant",
	} {
		if _, err := messagesCall([]byte(messageBody(extra)), limits(), &wire.Model{}); err == nil || err.Param != param {
			t.Errorf("%s: %v, want param %s", extra, err, param)
		}
	}
}

func TestToolsOfMessages(t *testing.T) {
	body := messageBody(`"tools":[{"type":"bash_20250124","name":"bash"},{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true,"cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g","input_schema":{"type":"object"}}],
		"tool_choice":{"type":"tool","name":"g","disable_parallel_tool_use":true},"metadata":{"user_id":"u1"},"top_k":5,"thinking":{"type":"enabled","budget_tokens":99},
		"output_config":{"format":{"type":"json_schema","schema":{"type":"string"}},"effort":"low"},"context_management":{}`)
	c, err := messagesCall([]byte(body), limits(), &wire.Model{Efforts: true})
	if err != nil {
		t.Fatal(err)
	}
	o, g := &c.options, c.options.Grammar
	if o.MaxTokens != 64 || o.TopK != 5 || o.CallsMax != 1 || o.ReasoningMax != 99 || c.user != "u1" || !slices.Equal(c.schemas, []string{"tools[1].input_schema", "tools[2].input_schema"}) {
		t.Errorf("%+v %+v", o, c)
	}
	if g == nil || g.Param != "output_config.format.schema" || g.Text != `{"type":"string"}` || g.Calls == nil || !g.Calls.Required || !strings.Contains(string(g.Calls.Tools), `"name":"g"`) || strings.Contains(string(g.Calls.Tools), `"name":"f"`) {
		t.Errorf("%+v", g)
	}
	if r := &c.prompts[0]; r.Think != wire.ThinkOn || r.Effort != "low" || !slices.Contains(c.ignored, "tools/bash_20250124") || !slices.Contains(c.ignored, "context_management") {
		t.Errorf("%+v, ignored %v", r, c.ignored)
	}
	relayed, err := messagesCall([]byte(messageBody(`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QQ=="}},{"type":"text","text":"what?"}]}],"thinking":{"type":"adaptive"},"stop_sequences":["x"]`)), limits(), &wire.Model{Relays: true})
	if err != nil {
		t.Fatal(err)
	}
	sent := string(relayed.prompts[0].Body)
	if !strings.Contains(sent, `{"type":"image_url","image_url":{"url":"data:image/png;base64,QQ=="}}`) || !strings.Contains(sent, `"max_completion_tokens":64`) || !strings.Contains(sent, `"stop":["x"]`) || strings.Contains(sent, "thinking") {
		t.Errorf("the other server gets %s", sent)
	}
}

type aMessage struct {
	ID, Type, Role, Model string
	Content               []aBlock
	StopReason            *string `json:"stop_reason"`
	StopSequence          *string `json:"stop_sequence"`
	Usage                 *struct {
		Input  *int `json:"input_tokens"`
		Cached *int `json:"cache_read_input_tokens"`
		Output *int `json:"output_tokens"`
	}
}

type aBlock struct {
	Type, Text, Thinking, Signature, ID, Name string
	Input                                     json.RawMessage
	done                                      bool
}

// followMessage reads a stream as Anthropic's clients do: message_start with usage first, blocks numbered without
// gaps, one open at a time, deltas of its own type. It gives the message that they make of it.
func followMessage(t *testing.T, body string) (m *aMessage, kinds []string) {
	t.Helper()
	name, arguments := "", ""
	for _, line := range strings.Split(body, "\n") {
		if kind, ok := strings.CutPrefix(line, "event: "); ok {
			name = kind
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type    string
			Index   int
			Message *aMessage
			Block   *aBlock `json:"content_block"`
			Delta   struct {
				Type, Text, Thinking, Signature string
				JSON                            string  `json:"partial_json"`
				StopReason                      *string `json:"stop_reason"`
				StopSequence                    *string `json:"stop_sequence"`
			}
			Usage *struct {
				Input  *int `json:"input_tokens"`
				Cached *int `json:"cache_read_input_tokens"`
				Output *int `json:"output_tokens"`
			}
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Type != name {
			t.Fatalf("%v: event %s: %s", err, name, data)
		}
		kinds = append(kinds, e.Type)
		open := func() *aBlock {
			if m == nil || e.Index != len(m.Content)-1 || m.Content[e.Index].done {
				t.Fatalf("block %d is not open: %s", e.Index, data)
			}
			return &m.Content[e.Index]
		}
		switch e.Type {
		case "message_start":
			if m = e.Message; m.Usage == nil || m.Usage.Input == nil || m.Usage.Output == nil || m.StopReason != nil || len(m.Content) != 0 {
				t.Fatalf("the start: %s", data)
			}
		case "content_block_start":
			if e.Index != len(m.Content) || e.Index > 0 && !m.Content[e.Index-1].done {
				t.Fatalf("a block begins out of order: %s", data)
			}
			m.Content, arguments = append(m.Content, *e.Block), ""
		case "content_block_delta":
			b := open()
			switch b.Type + " " + e.Delta.Type {
			case "text text_delta":
				b.Text += e.Delta.Text
			case "thinking thinking_delta":
				b.Thinking += e.Delta.Thinking
			case "thinking signature_delta":
				b.Signature = e.Delta.Signature
			case "tool_use input_json_delta":
				arguments += e.Delta.JSON
			default:
				t.Fatalf("a delta of another type: %s", data)
			}
		case "content_block_stop":
			b := open()
			if b.done = true; arguments != "" {
				b.Input = json.RawMessage(arguments)
			}
		case "message_delta":
			m.StopReason, m.StopSequence, m.Usage = e.Delta.StopReason, e.Delta.StopSequence, e.Usage
		}
	}
	return m, kinds
}

func TestMessagesStreamedAndWhole(t *testing.T) {
	r := simpleRig(t, mixed)
	const tools = `"stop_sequences":["END"],"tools":[{"name":"weather","input_schema":{"type":"object"}},{"name":"say","input_schema":{"type":"object"}}]`
	plain := r.do("POST", "/v1/messages?beta=true", messageBody(tools))
	var whole aMessage
	if err := json.Unmarshal([]byte(plain.body), &whole); plain.status != 200 || err != nil || plain.header.Get("Request-Id") == "" {
		t.Fatalf("%d %v %v %s", plain.status, err, plain.header, plain.body)
	}
	streamed := r.do("POST", "/v1/messages", messageBody(tools+`,"stream":true`))
	last, kinds := followMessage(t, streamed.body)
	want := "message_start block_start block_delta block_delta block_delta block_stop block_start block_delta block_delta block_stop block_start block_delta block_delta block_stop block_start block_delta block_delta block_stop message_delta message_stop"
	if got := strings.ReplaceAll(strings.Join(kinds, " "), "content_", ""); got != want {
		t.Errorf("events:\n%s\nwant:\n%s", got, want)
	}
	for name, m := range map[string]*aMessage{"plain": &whole, "streamed": last} {
		if m.Type != "message" || m.Role != "assistant" || m.Model != "fake" || !strings.HasPrefix(m.ID, "msg_") || len(m.Content) != 4 || m.StopReason == nil || *m.StopReason != "tool_use" || m.StopSequence != nil || *m.Usage.Output == 0 {
			t.Fatalf("%s: %+v", name, m)
		}
		c := m.Content
		if c[0].Type != "thinking" || c[0].Thinking != "Let me see." || c[0].Signature == "" || c[1].Type != "text" || c[1].Text != "\n\nI look.\n" ||
			c[2].Type != "tool_use" || c[2].ID != "call_1" || c[2].Name != "weather" || string(c[2].Input) != `{"city":"Rome"}` || c[3].Name != "say" {
			t.Errorf("%s: %+v", name, c)
		}
	}
	r.settled()
	if rec := r.recorder.Last(1)[0]; rec.Route != "messages" || rec.ToolCalls != 2 || rec.FirstWrite == 0 {
		t.Errorf("recorded %+v", rec)
	}
}

func TestMessagesEndings(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Pieces: []string{"a", "b", "c"}})
	for _, stream := range []string{"", `,"stream":true`} {
		got := r.do("POST", "/v1/messages", strings.Replace(messageBody("")[:len(messageBody(""))-1], "64", "2", 1)+stream+"}")
		m := new(aMessage)
		if stream == "" {
			if err := json.Unmarshal([]byte(got.body), m); err != nil {
				t.Fatal(err)
			}
		} else {
			m, _ = followMessage(t, got.body)
		}
		if m.Content[0].Text != "ab" || *m.StopReason != "max_tokens" || *m.Usage.Output != 2 || *m.Usage.Input+*m.Usage.Cached == 0 {
			t.Errorf("cut, stream %q: %s", stream, got.body)
		}
	}
	state := &messageState{}
	for _, c := range []struct {
		e    wire.Event
		want string
	}{
		{wire.Event{}, `"stop_reason":null,"stop_sequence":null`},
		{wire.Event{Finish: wire.FinishStop}, `"stop_reason":"end_turn","stop_sequence":null`},
		{wire.Event{Finish: wire.FinishStop, StopText: "E\"D"}, `"stop_reason":"stop_sequence","stop_sequence":"E\"D"`},
		{wire.Event{Finish: wire.FinishFilter}, `"stop_reason":"refusal","stop_sequence":null`},
	} {
		state.items.event(nil, &c.e)
		if got := string(state.appendStop(nil)); got != strings.ReplaceAll(c.want, `E"D`, `E\"D`) {
			t.Errorf("%+v: %s", c.e, got)
		}
	}

	r = simpleRig(t, wiretest.Script{Pieces: []string{"a", "b"}, Delay: time.Millisecond, Err: wire.Errorf(wire.NonFinite, "numbers")})
	got := r.do("POST", "/v1/messages", messageBody(`"stream":true`))
	if m, kinds := followMessage(t, got.body); kinds[0] != "message_start" || kinds[len(kinds)-1] != "error" || m.Content[0].Text != "ab" || !strings.Contains(got.body, `{"type":"error","error":{"type":"api_error","message":`) {
		t.Errorf("failed: %s", got.body)
	}
	for body, want := range map[string]string{
		messageBody(""): `500 "api_error"`, strings.Replace(messageBody(""), "fake", "other", 1): `404 "not_found_error"`, messageBody(`"tools":7`): `400 "invalid_request_error"`, `{`: `400 "invalid_request_error"`,
	} {
		got := r.do("POST", "/v1/messages", body)
		var e struct {
			Type  string
			Error struct{ Type, Message, Code string }
		}
		if err := json.Unmarshal([]byte(got.body), &e); err != nil || e.Type != "error" || e.Error.Message == "" || e.Error.Code == "" || fmt.Sprintf("%d %q", got.status, e.Error.Type) != want {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	r.settled()
}

func TestCountTokens(t *testing.T) {
	r := simpleRig(t, hello)
	body := strings.Replace(messageBody(""), `"max_tokens":64,`, "", 1)
	got := r.do("POST", "/v1/messages/count_tokens", body)
	var count struct {
		Tokens int `json:"input_tokens"`
	}
	var m aMessage
	if err := json.Unmarshal([]byte(got.body), &count); err != nil || got.status != 200 || count.Tokens == 0 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if whole := r.do("POST", "/v1/messages", body); json.Unmarshal([]byte(whole.body), &m) != nil || *m.Usage.Input+*m.Usage.Cached != count.Tokens {
		t.Errorf("counted %d, and the answer says %s", count.Tokens, whole.body)
	}
	if got := r.do("POST", "/v1/messages/count_tokens", `{"model":"fake"}`); got.status != 400 || !strings.HasPrefix(got.body, `{"type":"error"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.settled()
	if rec := r.recorder.Last(2)[0]; rec.Route != "count_tokens" && rec.Route != "messages" {
		t.Errorf("recorded %+v", rec)
	}
}

// TestNoFieldOfMessagesIsSilent: each that Anthropic documents is read, named as ignored, or refused by its name.
func TestNoFieldOfMessagesIsSilent(t *testing.T) {
	r := simpleRig(t, hello)
	read := 0
	for field, value := range map[string]string{
		"cache_control": `{"type":"ephemeral"}`, "container": `"c"`, "context_management": `{}`, "diagnostics": `{}`, "inference_geo": `"eu"`, "mcp_servers": `[]`, "metadata": `{"user_id":"u"}`,
		"output_config": `{"effort":"low"}`, "output_format": `{"type":"json_schema","schema":{"type":"string"}}`, "service_tier": `"auto"`, "speed": `"fast"`, "stop_sequences": `["x"]`, "stream": `true`, "system": `"s"`,
		"temperature": `0.5`, "thinking": `{"type":"between_tools","display":"omitted"}`, "tool_choice": `{"type":"none"}`, "tools": `[{"type":"web_search_20250305","name":"web_search"}]`, "top_k": `5`, "top_p": `0.5`, "user_profile_id": `"u"`,
	} {
		got := r.do("POST", "/v1/messages", messageBody(`"`+field+`":`+value))
		switch ignored := strings.Split(got.header.Get(ignoredHeader), ", "); {
		case got.status == 400 && strings.Contains(got.body, `"param":"`+field):
		case got.status == 200 && slices.ContainsFunc(ignored, func(s string) bool { return s == field || strings.HasPrefix(s, field+"/") }):
		case got.status == 200 && messagesRead[field], got.status == 200 && knownChat[field]:
			read++
		default:
			t.Errorf("%s is silent: %d, ignored %v: %s", field, got.status, ignored, got.body)
		}
	}
	if read < 10 {
		t.Errorf("only %d fields were read", read)
	}
}

// FuzzRewritten: what is written again as a chat is one, for our own engine and for another server.
func FuzzRewritten(f *testing.F) {
	for _, seed := range []string{
		messageBody(`"system":[{"type":"text","text":"s"}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"},"stop_sequences":["x"]`),
		messageBody(`"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"i","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"x"}]}]}]`),
		responseBody(responseTools), responseBody(`"input":[{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"x"}]`),
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, relays bool) {
		for name, decode := range map[string]decoder{"messages": messagesCall, "responses": responsesCall} {
			c, err := decode(slices.Clone(body), limits(), &wire.Model{Relays: relays})
			if err != nil {
				if err.Message == "" {
					t.Errorf("%s: an error without a message", name)
				}
				continue
			}
			if p := &c.prompts[0]; !json.Valid(p.Messages) || p.Tools != nil && !json.Valid(p.Tools) || relays && !json.Valid(p.Body) {
				t.Errorf("%s: messages %s, tools %s, body %s", name, p.Messages, p.Tools, p.Body)
			}
		}
	})
}
