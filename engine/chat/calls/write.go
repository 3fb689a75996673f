package calls

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Call is one call of a conversation.
type Call struct {
	ID, Name  string
	Arguments string // JSON, an object; what is none is written as it is
}

// Write returns the text of calls as a model of the format writes it, for templates
// that render none. first counts the calls before them.
func (f *Format) Write(list []Call, first int) string {
	s := f.Spelling()
	var b strings.Builder
	b.WriteString(s.First)
	for i, call := range list {
		if i > 0 {
			b.WriteString(s.Between)
		}
		for _, part := range s.Call {
			switch part.Hole {
			case NoHole:
				b.WriteString(part.Text)
			case HoleName:
				b.WriteString(call.Name)
			case HoleID:
				b.WriteString(f.HistoryID(call.ID, call.Name, first+i))
			case HoleIndex:
				b.WriteString(strconv.Itoa(first + i))
			case HoleArguments:
				f.writeArguments(&b, call.Arguments)
			}
		}
	}
	b.WriteString(s.Last)
	return b.String()
}

// writeArguments writes an object in the way of the format.
func (f *Format) writeArguments(b *strings.Builder, arguments string) {
	if f.Shape != Tagged && f.Shape != Pythonic && f.Shape != Braces {
		if arguments == "" {
			arguments = "{}"
		}
		b.WriteString(arguments)
		return
	}
	n := 0
	ok := eachMember([]byte(arguments), func(key string, value json.RawMessage) {
		if n++; n > 1 && f.Shape != Tagged {
			b.WriteString(map[Shape]string{Pythonic: ", ", Braces: ","}[f.Shape])
		}
		switch f.Shape {
		case Tagged:
			text, isString := string(value), value[0] == '"'
			if isString {
				_ = json.Unmarshal(value, &text)
			}
			before, after := f.Argument(key, isString)
			b.WriteString(before + text + after)
		case Pythonic:
			b.WriteString(key + "=")
			f.writeLiteral(b, value)
		default:
			b.WriteString(key + ":")
			f.writeLiteral(b, value)
		}
	})
	if !ok && n == 0 && strings.TrimSpace(arguments) != "" {
		b.WriteString(arguments)
	}
}

// writeLiteral writes a value in Python's spelling, or with bare keys and escapes.
func (f *Format) writeLiteral(b *strings.Builder, value json.RawMessage) {
	python := f.Shape == Pythonic
	separator := ","
	if python {
		separator = ", "
	}
	switch value = bytes.TrimSpace(value); value[0] {
	case '{':
		b.WriteByte('{')
		n := 0
		eachMember(value, func(key string, value json.RawMessage) {
			if n++; n > 1 {
				b.WriteString(separator)
			}
			if python {
				quoted, _ := json.Marshal(key)
				b.WriteString(string(quoted) + ": ")
			} else {
				b.WriteString(key + ":")
			}
			f.writeLiteral(b, value)
		})
		b.WriteByte('}')
	case '[':
		var items []json.RawMessage
		_ = json.Unmarshal(value, &items)
		b.WriteByte('[')
		for i, item := range items {
			if i > 0 {
				b.WriteString(separator)
			}
			f.writeLiteral(b, item)
		}
		b.WriteByte(']')
	case '"':
		if python {
			b.Write(value)
			return
		}
		var text string
		_ = json.Unmarshal(value, &text)
		b.WriteString(f.Escape + text + f.Escape)
	default:
		word := string(value)
		if named, ok := map[string]string{"true": "True", "false": "False", "null": "None"}[word]; ok && python {
			word = named
		}
		b.WriteString(word)
	}
}

// eachMember yields the members of a JSON object in their order. It is false for
// anything else.
func eachMember(data []byte, yield func(key string, value json.RawMessage)) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return false
		}
		name, _ := key.(string)
		yield(name, value)
	}
	return true
}
