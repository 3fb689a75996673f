package chat

import (
	"fmt"
	"strings"

	"github.com/forebay-io/forebay/engine/jinja"
)

// shape changes messages to the shape that the template supports. The package
// comment has the rules.
func (t *Template) shape(messages *jinja.List) error {
	for i, item := range messages.Items {
		m, ok := item.(*jinja.Dict)
		if !ok {
			return fmt.Errorf("messages[%d]: must be an object", i)
		}
		if role, _ := m.Get("role"); role == "developer" && !t.takesDeveloper {
			m.Set("role", "system")
		}
		if err := t.shapeContent(m); err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		if !t.takesTextArgs {
			shapeCalls(m)
		}
		shapeReasoning(m)
	}
	return nil
}

func (t *Template) shapeContent(m *jinja.Dict) error {
	role, _ := m.Get("role")
	name, _ := role.(string)
	shape, known := t.contents[name]
	if !known {
		shape = t.contents["user"]
	}
	content, _ := m.Get("content")
	if content == nil { // what the assistant said instead
		v, _ := m.Get("refusal")
		if refusal, ok := v.(string); ok {
			content = refusal
		}
	}
	switch content := content.(type) {
	case nil:
		calls, _ := m.Get("tool_calls")
		if calls != nil && t.takesNull {
			m.Set("content", nil)
		} else {
			m.Set("content", shape.text(""))
		}
	case string:
		m.Set("content", shape.text(content))
	case *jinja.List:
		text, err := joinParts(content)
		if err != nil {
			return err
		}
		if len(content.Items) <= 1 || !shape.parts {
			m.Set("content", shape.text(text))
		}
	}
	return nil
}

// text returns text in the shape that the template supports: a string or one part.
func (c contentShape) text(text string) any {
	if !c.only {
		return text
	}
	part := jinja.NewDict()
	part.Set("type", "text")
	part.Set("text", text)
	return &jinja.List{Items: []any{part}}
}

// joinParts returns the text of all parts. A refusal becomes a part of type text,
// which is what templates know.
func joinParts(parts *jinja.List) (string, error) {
	var text strings.Builder
	for i, item := range parts.Items {
		part, ok := item.(*jinja.Dict)
		if !ok {
			return "", fmt.Errorf("content[%d]: must be an object", i)
		}
		switch kind, _ := part.Get("type"); kind {
		case "text":
		case "refusal":
			refusal, _ := part.Get("refusal")
			part = jinja.NewDict()
			part.Set("type", "text")
			part.Set("text", refusal)
			parts.Items[i] = part
		default:
			return "", fmt.Errorf("content[%d]: only parts of type \"text\" and \"refusal\" are supported", i)
		}
		v, _ := part.Get("text")
		piece, ok := v.(string)
		if !ok {
			return "", fmt.Errorf("content[%d]: text must be a string", i)
		}
		text.WriteString(piece)
	}
	return text.String(), nil
}

// reasoningFields are the names of a message's reasoning; templates read the
// first, and those for gpt-oss the second.
var reasoningFields = []string{"reasoning_content", "thinking", "reasoning"}

// shapeReasoning gives a message's reasoning both names that templates read,
// as transformers does.
func shapeReasoning(m *jinja.Dict) {
	for _, name := range reasoningFields {
		v, _ := m.Get(name)
		if v == nil {
			continue
		}
		m.Set("reasoning_content", v)
		if _, ok := m.Get("thinking"); !ok {
			m.Set("thinking", v)
		}
		return
	}
}

// shapeCalls parses the arguments of tool calls. Text that is not a JSON object
// stays text.
func shapeCalls(m *jinja.Dict) {
	v, _ := m.Get("tool_calls")
	calls, ok := v.(*jinja.List)
	if !ok {
		return
	}
	for _, item := range calls.Items {
		call, ok := item.(*jinja.Dict)
		if !ok {
			continue
		}
		if v, _ := call.Get("function"); v != nil {
			if call, ok = v.(*jinja.Dict); !ok {
				continue
			}
		}
		v, _ := call.Get("arguments")
		text, ok := v.(string)
		if !ok {
			continue
		}
		if parsed, err := jinja.ParseJSON([]byte(text)); err == nil {
			if _, ok := parsed.(*jinja.Dict); ok {
				call.Set("arguments", parsed)
			}
		}
	}
}

// shapeTools gives tools what the protocol lets a client leave out.
func shapeTools(tools any) {
	list, _ := tools.(*jinja.List)
	for i := 0; list != nil && i < len(list.Items); i++ {
		tool, ok := list.Items[i].(*jinja.Dict)
		if !ok {
			continue
		}
		if v, _ := tool.Get("function"); v != nil {
			if tool, ok = v.(*jinja.Dict); !ok {
				continue
			}
		}
		if _, ok := tool.Get("description"); !ok {
			tool.Set("description", "")
		}
		if v, _ := tool.Get("parameters"); v == nil {
			parameters := jinja.NewDict()
			parameters.Set("type", "object")
			parameters.Set("properties", jinja.NewDict())
			tool.Set("parameters", parameters)
		}
	}
}
