package chat

import "github.com/forebay-io/forebay/engine/jinja"

// RenameCall returns the id that a template is to see for call number index of a
// conversation, in place of the one that the client wrote; name is "" where only a
// result has it.
type RenameCall func(written, name string, index int) string

// link gives calls the ids of rename, and their results the same ones. A result that
// does not say which tool it is from gets the name of its call.
func link(messages *jinja.List, rename RenameCall) {
	type call struct{ id, name string }
	known, count := map[string]call{}, 0
	for _, item := range messages.Items {
		m, ok := item.(*jinja.Dict)
		if !ok {
			continue
		}
		v, _ := m.Get("tool_calls")
		calls, _ := v.(*jinja.List)
		for i := 0; calls != nil && i < len(calls.Items); i++ {
			one, ok := calls.Items[i].(*jinja.Dict)
			if !ok {
				continue
			}
			function := one
			if v, _ := one.Get("function"); v != nil {
				function, _ = v.(*jinja.Dict)
			}
			written, name := text(one, "id"), text(function, "name")
			id := rename(written, name, count)
			if id != written {
				one.Set("id", id)
			}
			known[written] = call{id, name}
			count++
		}
		if written := text(m, "tool_call_id"); written != "" {
			from, ok := known[written]
			if !ok {
				from.id = rename(written, "", count)
			}
			if from.id != written {
				m.Set("tool_call_id", from.id)
			}
			if from.name != "" && text(m, "name") == "" {
				m.Set("name", from.name)
			}
		}
	}
}

// text is the string under key, or "".
func text(d *jinja.Dict, key string) string {
	if d == nil {
		return ""
	}
	v, _ := d.Get(key)
	s, _ := v.(string)
	return s
}
