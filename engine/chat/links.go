package chat

import (
	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/jinja"
)

// link gives calls the ids that templates of format f accept, and their results the
// same ones. A result that does not say which tool it is from gets the name of its call.
func link(messages *jinja.List, f *calls.Format) {
	type call struct{ id, name string }
	known, count := map[string]call{}, 0
	for _, item := range messages.Items {
		m, ok := item.(*jinja.Dict)
		if !ok {
			continue
		}
		for _, item := range callsOf(m) {
			one, ok := item.(*jinja.Dict)
			if !ok {
				continue
			}
			function := one
			if v, _ := one.Get("function"); v != nil {
				function, _ = v.(*jinja.Dict)
			}
			written, name := text(one, "id"), text(function, "name")
			id := f.HistoryID(written, name, count)
			if id != written {
				one.Set("id", id)
			}
			known[written] = call{id, name}
			count++
		}
		if written := text(m, "tool_call_id"); written != "" {
			from, ok := known[written]
			if !ok {
				from.id = f.HistoryID(written, "", count)
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
