package chat

import (
	"fmt"
	"strings"

	"github.com/forebay-io/forebay/engine/jinja"
)

// shape brings messages into the form that the template takes; see the
// package comment for the rules.
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
	}
	return nil
}

func (t *Template) shapeContent(m *jinja.Dict) error {
	content, _ := m.Get("content")
	if content == nil {
		if calls, _ := m.Get("tool_calls"); calls != nil && t.takesNull {
			m.Set("content", nil)
		} else {
			m.Set("content", "")
		}
	}
	parts, ok := content.(*jinja.List)
	if !ok {
		return nil
	}
	var text strings.Builder
	for i, item := range parts.Items {
		part, ok := item.(*jinja.Dict)
		if !ok {
			return fmt.Errorf("content[%d]: must be an object", i)
		}
		if kind, _ := part.Get("type"); kind != "text" {
			return fmt.Errorf("content[%d]: only parts of type \"text\" are supported", i)
		}
		v, _ := part.Get("text")
		piece, ok := v.(string)
		if !ok {
			return fmt.Errorf("content[%d]: text must be a string", i)
		}
		text.WriteString(piece)
	}
	if len(parts.Items) == 1 || !t.takesParts {
		m.Set("content", text.String())
	}
	return nil
}

// shapeCalls makes objects of tool call arguments; what is no JSON object stays.
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
