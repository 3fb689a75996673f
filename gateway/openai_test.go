package gateway

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

func limits() *LimitsConfig {
	var l LimitsConfig
	conf.Fill(&l)
	return &l
}

func decodeText(t *testing.T, body string, chat bool) *call {
	t.Helper()
	c, err := decodeCall([]byte(body), chat, limits(), &wire.Model{})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	c.options.Seed = 0
	return c
}

func TestNullIsAbsent(t *testing.T) {
	for _, chat := range []bool{true, false} {
		body := textBody
		if chat {
			body = chatBody
		}
		want := decodeText(t, body(""), chat)
		for _, field := range []string{"max_tokens", "max_completion_tokens", "stop", "seed", "n", "logprobs", "top_logprobs", "top_p", "top_k", "min_p", "temperature", "stream", "stream_options", "tools", "tool_choice", "response_format", "logit_bias", "user", "parallel_tool_calls", "echo", "best_of", "suffix", "service_tier", "presence_penalty"} {
			got := decodeText(t, body(`"`+field+`":null`), chat)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("chat=%v %s: %s", chat, field, diff)
			}
		}
	}
}

func TestContentForms(t *testing.T) {
	r := simpleRig(t, hello)
	for _, role := range []string{"system", "developer", "user", "assistant", "tool"} {
		tokens := func(content string) any {
			resp := r.do("POST", "/v1/chat/completions", `{"model":"fake","messages":[{"role":"`+role+`","content":`+content+`}]}`)
			if resp.status != 200 {
				t.Fatalf("%s %s: %s", role, content, resp.body)
			}
			return object(t, resp.body)["usage"].(map[string]any)["prompt_tokens"]
		}
		text, part := tokens(`"abc"`), tokens(`[{"type":"text","text":"abc"}]`)
		parts := tokens(`[{"type":"text","text":"a"},{"type":"text","text":"b"},{"type":"text","text":"c"}]`)
		if text != part || text != parts {
			t.Errorf("%s: %v %v %v tokens", role, text, part, parts)
		}
	}
}

func TestMessagesPassUnchanged(t *testing.T) {
	messages := `[{"role":"user","content":"w"}, {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\\\"c\"}"}}]},{"role":"assistant","tool_calls":[]},{"role":"assistant"},{"role":"tool","tool_call_id":"1","content":"ok"},{"role":"developer","content":"d"}]`
	c := decodeText(t, `{"model":"m","messages":`+messages+`}`, true)
	if string(c.prompts[0].Messages) != messages {
		t.Errorf("messages became %s", c.prompts[0].Messages)
	}
}

func TestRefusedValues(t *testing.T) {
	const both = "chat and text"
	for _, c := range []struct{ route, field, param string }{
		{both, `"max_tokens":-1`, "max_tokens"}, {both, `"max_tokens":1.5`, "max_tokens"}, {both, `"max_tokens":"10"`, "max_tokens"},
		{both, `"max_tokens":2147483648`, "max_tokens"}, {both, `"max_tokens":9223372036854775808`, "max_tokens"}, {both, `"max_tokens":1e400`, "max_tokens"},
		{both, `"max_tokens":0`, "max_tokens"}, {"chat", `"max_completion_tokens":0`, "max_completion_tokens"},
		{both, `"logit_bias":{"-1":1}`, "logit_bias"}, {both, `"logit_bias":{"x":1}`, "logit_bias"}, {both, `"logit_bias":{"1":1e9}`, "logit_bias"}, {both, `"logit_bias":[1]`, "logit_bias"},
		{"chat", `"top_logprobs":2`, "top_logprobs"}, {"chat", `"logprobs":2`, "logprobs"},
		{both, `"n":0`, "n"}, {both, `"n":-1`, "n"}, {both, `"n":129`, "n"}, {both, `"n":1000000`, "n"}, {"text", `"n":2,"best_of":1`, "best_of"}, {"text", `"best_of":3`, "best_of"},
		{"chat", `"logprobs":true,"top_logprobs":21`, "top_logprobs"}, {"text", `"logprobs":6`, "logprobs"}, {"text", `"logprobs":true`, "logprobs"},
		{both, `"temperature":-1`, "temperature"}, {both, `"temperature":2.1`, "temperature"}, {both, `"temperature":"hot"`, "temperature"},
		{both, `"top_p":0`, "top_p"}, {both, `"top_p":1.1`, "top_p"}, {both, `"presence_penalty":2.1`, "presence_penalty"}, {both, `"frequency_penalty":-2.1`, "frequency_penalty"},
		{both, `"min_p":-0.1`, "min_p"}, {both, `"top_k":-2`, "top_k"}, {both, `"repetition_penalty":0`, "repetition_penalty"}, {both, `"seed":1.5`, "seed"},
		// never ignored
		{both, `"response_format":{"type":"xml"}`, "response_format"}, {both, `"response_format":{}`, "response_format"}, {both, `"response_format":{"type":"json_schema"}`, "response_format"},
		{both, `"response_format":{"type":"json_schema","json_schema":7}`, "response_format.json_schema"}, {both, `"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`, "response_format.json_schema"},
		{both, `"response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}}`, "response_format.json_schema"},
		{both, `"response_format":{"type":"json_object"},"stop":"x"`, "stop"}, {both, `"response_format":{"type":"json_object"},"ignore_eos":true`, "ignore_eos"},
		{both, `"response_format":"text"`, "response_format"},
		{"chat", `"tool_choice":"required"`, "tool_choice"}, {"chat", `"tool_choice":{"type":"function"}`, "tool_choice"}, {"chat", `"tools":{}`, "tools"},
		{"chat", `"tools":[7]`, "tools[0]"}, {"chat", `"tools":[{"type":"function","function":{"name":"f"}},{}]`, "tools[1]"}, {"chat", `"tools":[{"type":"code","function":{"name":"f"}}]`, "tools[0]"},
		{"chat", `"tools":[{"type":"function","function":{"name":7}}]`, "tools[0]"}, {"chat", `"tools":[{"type":"function","function":{"name":""}}]`, "tools[0]"}, {"chat", `"tools":[{"type":"function"}]`, "tools[0]"},
		{"chat", `"parallel_tool_calls":"no"`, "parallel_tool_calls"}, {both, `"user":7`, "user"}, {both, `"service_tier":7`, "service_tier"}, {both, `"service_tier":"gold"`, "service_tier"}, {both, `"service_tier":""`, "service_tier"},
		{"chat", `"functions":[]`, "functions"}, {"chat", `"modalities":["audio"]`, "modalities"}, {"text", `"suffix":"x"`, "suffix"},
		{both, `"stream":"yes"`, "stream"}, {both, `"stream_options":{}`, "stream_options"}, {both, `"stream":true,"stream_options":{"include_usage":1}`, "stream_options.include_usage"},
		{both, `"stop":["a","b","c","d","e"]`, "stop"}, {both, `"stop":[1]`, "stop"}, {both, `"stop":""`, "stop"}, {both, `"model":""`, "model"}, {both, `"model":7`, "model"},
		{"chat", `"messages":"x"`, "messages"}, {"chat", `"messages":[1]`, "messages[0]"}, {"chat", `"messages":[{"role":"wizard","content":"x"}]`, "messages[0].role"},
		{"chat", `"messages":[{"role":"user"}]`, "messages[0].content"}, {"chat", `"messages":[{"role":"user","content":null}]`, "messages[0].content"}, {"chat", `"messages":[{"role":"assistant"},{"role":"tool"}]`, "messages[1].content"},
		{"chat", `"messages":[{"role":"assistant","content":{}}]`, "messages[0].content"},
		{"chat", `"messages":[{"role":"user","content":7}]`, "messages[0].content"}, {"chat", `"messages":[{"role":"user","content":[{"type":"image_url"}]}]`, "messages[0].content[0]"},
		{"chat", `"messages":[{"role":"user","content":[{"type":"refusal","refusal":"no"}]}]`, "messages[0].content[0]"}, {"chat", `"messages":[{"role":"assistant","content":[{"type":"refusal"}]}]`, "messages[0].content[0]"},
		{"chat", `"messages":[{"role":"assistant","content":[{"type":"refusal","text":"no"}]}]`, "messages[0].content[0]"}, {"chat", `"messages":[{"role":"assistant","content":[{"type":"text","refusal":"no"}]}]`, "messages[0].content[0]"},
		{"text", `"prompt":[]`, "prompt"}, {"text", `"prompt":[1.5]`, "prompt"}, {"text", `"prompt":["a",1]`, "prompt"}, {"text", `"prompt":[[1],[]]`, "prompt"}, {"text", `"prompt":[-1]`, "prompt"}, {"text", `"prompt":{}`, "prompt"},
	} {
		for _, chat := range []bool{true, false} {
			if chat && c.route == "text" || !chat && c.route == "chat" {
				continue
			}
			body := textBody(c.field)
			if chat {
				body = chatBody(c.field)
			}
			_, err := decodeCall([]byte(body), chat, limits(), &wire.Model{})
			if err == nil || err.Kind != wire.Invalid || err.Param != c.param {
				t.Errorf("%s: %v, want param %s", body, err, c.param)
			}
		}
	}
}

// What an answer holds may be sent back as a message.
func TestRefusalsAreTaken(t *testing.T) {
	r := simpleRig(t, hello)
	for _, message := range []string{
		`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`,
		`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"refusal","refusal":"no"}]}`,
		`{"role":"assistant","content":null,"refusal":"no"}`,
	} {
		if resp := r.chat(`"messages":[{"role":"user","content":"hi"},` + message + `]`); resp.status != 200 {
			t.Errorf("%s: %d %s", message, resp.status, resp.body)
		}
	}
}

func TestHugeLimitsCostNothing(t *testing.T) {
	r := simpleRig(t, hello)
	var before, after runtime.MemStats
	r.chat(`"max_tokens":100000000`)
	runtime.ReadMemStats(&before)
	if resp := r.chat(`"max_tokens":2147483647`); resp.status != 200 {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes for a large max_tokens", grown)
	}
}

func TestCountsAreBounded(t *testing.T) {
	for field, body := range map[string]string{
		"messages": `{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, 20000) + `{"role":"user"}]}`,
		"tools":    chatBody(`"tools":[` + strings.Repeat(`{},`, 5000) + `{}]`),
	} {
		if _, err := decodeCall([]byte(body), true, limits(), &wire.Model{}); err == nil || err.Param != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestNewerLimitWins(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Endless: true})
	for _, c := range []struct {
		fields string
		tokens float64
	}{{`"max_completion_tokens":5`, 5}, {`"max_tokens":5`, 5}, {`"max_tokens":9,"max_completion_tokens":5`, 5}} {
		m := object(t, r.chat(c.fields).body)
		if m["usage"].(map[string]any)["completion_tokens"] != c.tokens || m["choices"].([]any)[0].(map[string]any)["finish_reason"] != "length" {
			t.Errorf("%s: %v", c.fields, m)
		}
		all := events(r.chat(c.fields + `,"stream":true`).body)
		if last := all[len(all)-2]; !strings.Contains(last, `"finish_reason":"length"`) || !strings.Contains(last, `"delta":{}`) || len(all) != 8 {
			t.Errorf("%s: %q", c.fields, all)
		}
	}
}

func TestPromptForms(t *testing.T) {
	r := simpleRig(t, hello)
	for prompt, c := range map[string]struct {
		choices int
		tokens  float64
	}{`"hi"`: {2, 2}, `["hi","you"]`: {4, 5}, `[104,105]`: {2, 2}, `[[104,105],[121]]`: {4, 3}} {
		body := `{"model":"fake","prompt":` + prompt + `,"n":2`
		m := object(t, r.do("POST", "/v1/completions", body+`}`).body)
		usage := m["usage"].(map[string]any)
		if usage["prompt_tokens"] != c.tokens || usage["completion_tokens"] != float64(2*c.choices) {
			t.Errorf("%s: usage %v", prompt, usage)
		}
		var plain []string
		for i, choice := range m["choices"].([]any) {
			if choice.(map[string]any)["index"] != float64(i) {
				t.Errorf("%s: choice %d is %v", prompt, i, choice)
			}
			plain = append(plain, choice.(map[string]any)["text"].(string))
		}
		streamed := make([]string, c.choices)
		finishes := 0
		all := events(r.do("POST", "/v1/completions", body+`,"stream":true}`).body)
		for _, e := range all[:len(all)-1] {
			choice := object(t, e)["choices"].([]any)[0].(map[string]any)
			streamed[int(choice["index"].(float64))] += choice["text"].(string)
			if choice["finish_reason"] != nil {
				finishes++
			}
		}
		if diff := cmp.Diff(plain, streamed); diff != "" || len(plain) != c.choices || finishes != c.choices {
			t.Errorf("%s: %d choices, %d finishes, %s", prompt, len(plain), finishes, diff)
		}
	}
}

func TestEchoAndLogprobs(t *testing.T) {
	r := simpleRig(t, hello)
	for _, stream := range []bool{false, true} {
		body := textBody(fmt.Sprintf(`"echo":true,"max_tokens":0,"logprobs":1,"stream":%v`, stream))
		text := r.do("POST", "/v1/completions", body).body
		if stream {
			text = events(text)[0]
		}
		choice := object(t, text)["choices"].([]any)[0].(map[string]any)
		l := choice["logprobs"].(map[string]any)
		values := l["token_logprobs"].([]any)
		if choice["text"] != "hi" || len(values) != 2 || values[0] != nil || len(l["tokens"].([]any)) != 2 || len(l["top_logprobs"].([]any)) != 2 || len(l["text_offset"].([]any)) != 2 {
			t.Errorf("stream=%v: %s", stream, text)
		}
		if !stream && (choice["finish_reason"] != "length" || object(t, text)["usage"].(map[string]any)["completion_tokens"] != 0.0) {
			t.Errorf("%s", text)
		}
	}
}

func TestTokensAreToldApart(t *testing.T) {
	top := func(all ...string) (tops []wire.TopLogprob) {
		for i, text := range all {
			tops = append(tops, wire.TopLogprob{ID: int32(i), Bytes: []byte(text), Logprob: -1})
		}
		return tops
	}
	l := &logprobList{}
	l.add([]wire.TokenLogprob{
		{ID: 9, Bytes: []byte("a"), Top: top("a", "\xe2\x9c", "\xe2", "", "")},
		{ID: 8, Bytes: []byte("\xe2\x9c"), Top: top("é", "é", "\"", `\`, "\n")},
		{ID: 7, Bytes: []byte("\x94b"), Top: top("\x94", "\x94")},
		{ID: 6, Bytes: nil, Top: nil},
		{ID: 5, Bytes: []byte("c"), Top: top()},
	})
	want := `{"tokens":["a","bytes:\\xe2\\x9c","bytes:\\x94\\x62","<|token:6|>","c"],"token_logprobs":[0,0,0,0,0],"top_logprobs":[` +
		`{"<|token:0|>":-1,"bytes:\\xe2\\x9c":-1,"bytes:\\xe2":-1,"<|token:3|>":-1,"<|token:4|>":-1,"a":0},` +
		`{"é":-1,"<|token:1|>":-1,"\"":-1,"\\":-1,"\n":-1,"bytes:\\xe2\\x9c":0},{"bytes:\\x94":-1,"<|token:1|>":-1,"bytes:\\x94\\x62":0},{"<|token:6|>":0},{"c":0}],"text_offset":[0,1,1,3,3]}`
	if got := string(l.append(nil)); got != want || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestHostileJSON(t *testing.T) {
	start := time.Now()
	for name, body := range map[string]string{
		"open nesting":     `{"zz":` + strings.Repeat("[", 1_000_000),
		"balanced nesting": chatBody(`"zz":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)),
		"nested tools":     chatBody(`"tools":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)),
		"invalid UTF-8":    chatBody(`"zz":"` + "\xff" + `"`),
		"byte order mark":  "\ufeff" + chatBody(""),
		"NaN":              chatBody(`"temperature":NaN`),
		"trailing":         chatBody("") + "x",
		"two values":       chatBody("") + "{}",
		"leading zero":     chatBody(`"seed":01`),
		"control byte":     chatBody("\"user\":\"a\nb\""),
		"NUL at the end":   chatBody("") + "\x00",
	} {
		if _, err := decodeCall([]byte(body), true, limits(), &wire.Model{}); err == nil || err.Kind != wire.Invalid || len(err.Message) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
	keys := chatBody(`"a":1` + strings.Repeat(`,"b":2`, 1_000_000))
	digits := chatBody(`"zz":` + strings.Repeat("1", 5<<20))
	for _, body := range []string{keys, digits} {
		if _, err := decodeCall([]byte(body), true, limits(), &wire.Model{}); err != nil {
			t.Error(err)
		}
	}
	t.Logf("all in %v", time.Since(start))
	if c := decodeText(t, chatBody(`"model":"second","n":2,"n":3`), true); c.model != "second" || c.options.N != 3 {
		t.Errorf("of equal keys the last must count: %q %d", c.model, c.options.N)
	}
}

// TestBodiesCostLittleMoreThanTheirSize decodes bodies of millions of small
// values, which slices or maps of values would multiply.
func TestBodiesCostLittleMoreThanTheirSize(t *testing.T) {
	const many = 1_000_000
	keys := &strings.Builder{}
	for i := range many {
		fmt.Fprintf(keys, `,"k%d":1`, i)
	}
	for name, c := range map[string]struct {
		body string
		chat bool
	}{
		"ids":          {`{"model":"m","prompt":[1` + strings.Repeat(",1", many) + `]}`, false},
		"keys":         {chatBody(`"a":1` + keys.String()), true},
		"message keys": {`{"model":"m","messages":[{"role":"user","content":""` + keys.String() + `}]}`, true},
		"parts":        {`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":""}` + strings.Repeat(`,{"type":"text","text":""}`, many/4) + `]}]}`, true},
	} {
		body := []byte(c.body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeCall(body, c.chat, limits(), &wire.Model{})
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; err != nil || cost > uint64(4*len(body)) {
			t.Errorf("%s: %d bytes for a body of %d, %v", name, cost, len(body), err)
		}
	}
}

func TestBiasesKeepTheirOrderAndTheLastCounts(t *testing.T) {
	c := decodeText(t, chatBody(`"logit_bias":{"7":1,"3":2,"7":-5}`), true)
	if fmt.Sprint(c.options.LogitBias) != "[{7 -5} {3 2}]" {
		t.Errorf("%v", c.options.LogitBias)
	}
	for _, key := range []string{"+7", "07", "-0"} {
		if _, err := decodeCall([]byte(chatBody(`"logit_bias":{"`+key+`":1}`)), true, limits(), &wire.Model{}); err == nil || err.Param != "logit_bias" {
			t.Errorf("key %s: %v", key, err)
		}
	}
}

func BenchmarkDecodeLargeChat(b *testing.B) {
	body := []byte(strings.Replace(chatBody(""), "hi", strings.Repeat("lorem ipsum ", 8<<20/12-100), 1))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeCall(body, true, limits(), &wire.Model{}); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzChatRequest(f *testing.F) {
	f.Add([]byte(chatBody(`"stream":true,"stop":["a","\ud83d"],"logit_bias":{"5":1}`)), true)
	f.Add([]byte(textBody(`"logprobs":2,"echo":true`)), false)
	f.Add([]byte(`{"model":"m","prompt":[[1,2],[3]],"n":2}`), false)
	f.Add([]byte("\x00\"model\":\"m\",\"prompt\":\"\"}"), false) // no bracket, but the byte that stands for the end
	f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"tools":[{}]}`), true)
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		c, err := decodeCall(body, chat, limits(), &wire.Model{})
		if err != nil {
			if err.Kind != wire.Invalid || err.Message == "" {
				t.Errorf("%v", err)
			}
			return
		}
		if !json.Valid(body) {
			t.Errorf("accepted what is not JSON: %q", body)
		}
		o := &c.options
		if o.N < 1 || o.N > 16 || o.MaxTokens < 0 || o.Temperature < 0 || o.Temperature > 2 || len(o.Stop) > 4 || len(c.prompts) == 0 {
			t.Errorf("out of range: %+v", c)
		}
		for _, p := range c.prompts {
			if p.Messages != nil && !json.Valid(p.Messages) || p.Tools != nil && !json.Valid(p.Tools) {
				t.Errorf("raw parts are not JSON: %s %s", p.Messages, p.Tools)
			}
			if (p.Messages != nil) == (p.Text != nil || p.Tokens != nil) {
				t.Errorf("not exactly one prompt: %+v", p)
			}
		}
	})
}

// TestGolden plays requests against scripted engines and compares the bytes.
// Ids, dates and times are replaced by their names.
func TestGolden(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden.txt", func(t *testing.T, d *datadriven.TestData) string {
		var pieces []string
		script := wiretest.Script{}
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "pieces":
				pieces = arg.Vals
			case "fail":
				script.Err = wire.Errorf(wire.Unavailable, "the engine stopped")
			case "length":
				script.Finish = wire.FinishLength
			}
		}
		for _, p := range pieces {
			script.Pieces = append(script.Pieces, strings.ReplaceAll(p, "_", " "))
		}
		r := simpleRig(t, script)
		path := "/v1/completions"
		if d.Cmd == "chat" {
			path = "/v1/chat/completions"
		}
		resp := r.do("POST", path, d.Input)
		return fmt.Sprintf("%d %s\n%s", resp.status, resp.header.Get("Content-Type"), scrub(resp.body))
	})
}

// scrub names what differs from run to run.
func scrub(body string) string {
	var b strings.Builder
	for len(body) > 0 {
		i := strings.Index(body, `"id":"`)
		if i < 0 {
			break
		}
		i += len(`"id":"`)
		end := i + strings.IndexByte(body[i:], '"')
		b.WriteString(body[:i] + strings.SplitN(body[i:end], "-", 2)[0] + "-ID")
		body = body[end:]
		if j := strings.Index(body, `"created":`); j >= 0 {
			j += len(`"created":`)
			b.WriteString(body[:j] + "TIME")
			body = strings.TrimLeft(body[j:], "0123456789")
		}
	}
	// A blank line would end the expected output.
	return strings.ReplaceAll(b.String()+body, "\n\n", "\n")
}
