package upstream

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// This file mends tool calls in streams. Clients join the parts of a call by its
// index, and join texts that come twice; some servers number all calls 0, send the id
// and the name again with the last part, or send arguments as an object.

// calls are the tool calls of a choice that have begun, by index.
type calls []openCall

type openCall struct {
	theirs int // the server's index
	id     string
}

type callPart struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// mend returns the parts of calls in raw, the value of tool_calls, as clients need
// them: raw itself where nothing is wrong with it. A call without an id gets one.
func (c *calls) mend(raw []byte, request string, choice int) []byte {
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return raw
	}
	wrong := false
	out := []byte{'['}
	for i, part := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		mended := c.mendPart(part, request, choice)
		if mended == nil {
			mended = part
		} else {
			wrong = true
		}
		out = append(out, mended...)
	}
	if !wrong {
		return raw
	}
	return append(out, ']')
}

// mendPart returns a part anew, nil where nothing is wrong with it.
func (c *calls) mendPart(raw []byte, request string, choice int) []byte {
	var p callPart
	if json.Unmarshal(raw, &p) != nil {
		return nil
	}
	index, begins := c.place(&p)
	again := !begins && (p.ID != "" || p.Function.Name != "")
	object := len(p.Function.Arguments) > 0 && p.Function.Arguments[0] != '"' && given(p.Function.Arguments)
	if begins && p.ID == "" {
		p.ID = "call_" + hashed(fmt.Sprint(request, choice, index))[:24]
	} else if p.Index != nil && *p.Index == index && !again && !object {
		return nil
	}
	b := strconv.AppendInt([]byte(`{"index":`), int64(index), 10)
	if begins {
		kind := p.Type
		if kind == "" {
			kind = "function"
		}
		b = appendMember(append(b, ','), "id", quote(p.ID))
		b = appendMember(append(b, ','), "type", quote(kind))
	}
	b = append(b, `,"function":{`...)
	if begins {
		b = append(appendMember(b, "name", quote(p.Function.Name)), ',')
	}
	arguments := p.Function.Arguments
	switch {
	case object:
		arguments = quote(string(arguments))
	case !given(arguments):
		arguments = []byte(`""`)
	}
	return append(appendMember(b, "arguments", arguments), "}}"...)
}

// callsMost bounds the calls of a choice that are told apart.
const callsMost = 1024

// place returns the index of the call that p is a part of, and whether it begins.
func (c *calls) place(p *callPart) (index int, begins bool) {
	theirs := len(*c)
	if p.Index != nil {
		theirs = *p.Index
	} else if p.ID == "" && len(*c) > 0 {
		return len(*c) - 1, false
	}
	for i := len(*c) - 1; i >= 0; i-- {
		if open := (*c)[i]; open.theirs == theirs && (p.ID == "" || open.id == "" || open.id == p.ID) {
			return i, false
		}
	}
	if len(*c) >= callsMost {
		return len(*c) - 1, false
	}
	*c = append(*c, openCall{theirs, p.ID})
	return len(*c) - 1, true
}
