package chat

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/jinja"
)

// Polyfill writes into messages what a template does not render of tools. The zero
// value writes nothing. Texts of the client stay guarded; markers of the format become
// tokens.
type Polyfill struct {
	// Calls writes the calls of the assistant into its content.
	Calls bool
	// Single makes one message for each call, with its result after it.
	Single bool
	// Results makes the results of tools messages of the user.
	Results bool
	// Tools tells the model of its tools and how to call them, in the system message or,
	// where the template has no place for one, in the first message of the user.
	Tools bool
}

// polyfill changes messages that are shaped and guarded.
func (t *Template) polyfill(messages *jinja.List, in *Input) {
	if in.Polyfill.Single {
		t.separate(messages)
	}
	if in.Polyfill.Calls {
		t.writeCalls(messages, in.Format)
	}
	if in.Polyfill.Results {
		t.writeResults(messages)
	}
	if in.Polyfill.Tools && in.Tools != nil {
		t.tell(messages, t.toolPrompt(in.Format, in.Tools))
	}
}

func (t *Template) writeCalls(messages *jinja.List, f *calls.Format) {
	count := 0
	for _, item := range messages.Items {
		m, ok := item.(*jinja.Dict)
		if !ok {
			continue
		}
		items := callsOf(m)
		if len(items) == 0 {
			continue
		}
		var list []calls.Call
		for _, item := range items {
			one, _ := item.(*jinja.Dict)
			function := one
			if one != nil {
				if v, _ := one.Get("function"); v != nil {
					function, _ = v.(*jinja.Dict)
				}
			}
			list = append(list, calls.Call{ID: text(one, "id"), Name: text(function, "name"), Arguments: argumentsText(function)})
		}
		said := t.said(m)
		if said != "" {
			said += "\n"
		}
		m.Set("content", t.contents["assistant"].text(said+f.Write(list, count)))
		m.Set("tool_calls", nil)
		count += len(list)
	}
}

// separate gives each call a message of its own, with its result after it.
func (t *Template) separate(messages *jinja.List) {
	var out []any
	for i := 0; i < len(messages.Items); i++ {
		m, _ := messages.Items[i].(*jinja.Dict)
		list := callsOf(m)
		if len(list) < 2 {
			out = append(out, messages.Items[i])
			continue
		}
		results := messages.Items[i+1:]
		for n, item := range results {
			if d, _ := item.(*jinja.Dict); text(d, "role") != "tool" {
				results = results[:n]
				break
			}
		}
		i += len(results)
		used := make([]bool, len(results))
		for n, call := range list {
			one := jinja.NewDict()
			for _, key := range m.Keys() {
				v, _ := m.Get(key)
				one.Set(key, v)
			}
			if n > 0 {
				one.Set("content", t.contents["assistant"].text(""))
			}
			one.Set("tool_calls", &jinja.List{Items: []any{call}})
			out = append(out, one)
			d, _ := call.(*jinja.Dict)
			for k, result := range results {
				if r, _ := result.(*jinja.Dict); !used[k] && text(r, "tool_call_id") == text(d, "id") {
					used[k] = true
					out = append(out, result)
				}
			}
		}
		for k, result := range results {
			if !used[k] {
				out = append(out, result)
			}
		}
	}
	messages.Items = out
}

// callsOf are the calls of a message.
func callsOf(m *jinja.Dict) []any {
	if m == nil {
		return nil
	}
	v, _ := m.Get("tool_calls")
	if list, _ := v.(*jinja.List); list != nil {
		return list.Items
	}
	return nil
}

// argumentsText is a call's arguments as JSON, which shape may have parsed.
func argumentsText(function *jinja.Dict) string {
	if function == nil {
		return ""
	}
	v, _ := function.Get("arguments")
	if s, ok := v.(string); ok {
		return s
	}
	if v == nil {
		return ""
	}
	return string(plainJSON(nil, v))
}

// said is the text of a message's content.
func (t *Template) said(m *jinja.Dict) string {
	switch v, _ := m.Get("content"); v := v.(type) {
	case string:
		return v
	case *jinja.List:
		s, _ := joinParts(v)
		return s
	}
	return ""
}

// writeResults makes results messages of the user. Those that follow each other become
// one, with what the user said after them: some templates want turns to alternate.
func (t *Template) writeResults(messages *jinja.List) {
	kept := messages.Items[:0]
	var last *jinja.Dict // the message of results that kept ends with
	for _, item := range messages.Items {
		m, ok := item.(*jinja.Dict)
		if !ok {
			kept = append(kept, item)
			continue
		}
		role := text(m, "role")
		said := t.said(m)
		if role == "tool" || role == "function" {
			said = "<tool_response>\n" + said + "\n</tool_response>"
		}
		switch {
		case last != nil && (role == "tool" || role == "function" || role == "user"):
			last.Set("content", t.contents["user"].text(t.said(last)+"\n"+said))
			continue
		case role == "tool" || role == "function":
			last = jinja.NewDict()
			last.Set("role", "user")
			last.Set("content", t.contents["user"].text(said))
			kept = append(kept, last)
			continue
		}
		last = nil
		kept = append(kept, item)
	}
	messages.Items = kept
}

// tell puts text before a conversation.
func (t *Template) tell(messages *jinja.List, prompt string) {
	for _, item := range messages.Items {
		m, ok := item.(*jinja.Dict)
		if !ok {
			return
		}
		switch role := text(m, "role"); {
		case role == "system" || role == "developer":
			m.Set("content", t.contents["system"].text(t.said(m)+"\n\n"+prompt))
			return
		case !t.takesSystem && role == "user":
			m.Set("content", t.contents["user"].text(prompt+"\n\n"+t.said(m)))
			return
		case t.takesSystem:
			system := jinja.NewDict()
			system.Set("role", "system")
			system.Set("content", t.contents["system"].text(prompt))
			messages.Items = append([]any{system}, messages.Items...)
			return
		}
	}
}

// toolPrompt tells a model of its tools, and how to call them in format f.
func (t *Template) toolPrompt(f *calls.Format, tools json.RawMessage) string {
	var list []json.RawMessage
	if json.Unmarshal(tools, &list) != nil {
		return ""
	}
	var b strings.Builder
	b.WriteString("You can call these functions. Each line has the name of one, what it does, and the JSON schema of its arguments:\n")
	for _, raw := range list {
		var tool struct {
			Function json.RawMessage `json:"function"`
		}
		if json.Unmarshal(raw, &tool) == nil && tool.Function != nil {
			raw = tool.Function
		}
		b.WriteString(t.guard.text(string(raw)))
		b.WriteByte('\n')
	}
	b.WriteString("To call a function, write nothing but this, with its name and arguments:\n")
	b.WriteString(f.Write([]calls.Call{{Name: "NAME", Arguments: `{"ARGUMENT": "VALUE"}`}}, 0))
	b.WriteString("\nYou will get the result between <tool_response> and </tool_response>. If you need no function, answer in plain words.")
	return b.String()
}

// plainJSON appends a value of messages as JSON.
func plainJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case *jinja.List:
		b = append(b, '[')
		for i, item := range v.Items {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = plainJSON(b, item)
		}
		return append(b, ']')
	case *jinja.Dict:
		b = append(b, '{')
		for i, key := range v.Keys() {
			if i > 0 {
				b = append(b, ", "...)
			}
			value, _ := v.Get(key)
			b = plainJSON(append(plainJSON(b, key), ": "...), value)
		}
		return append(b, '}')
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return append(b, "null"...)
	}
	return append(b, bytes.TrimSpace(out.Bytes())...)
}
