package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// jsonDepthMax bounds the nesting of JSON values. It is below the evaluator's
// limit, so that the evaluator can walk any value.
const jsonDepthMax = 100

// ParseJSON reads one JSON value. Objects keep the order of their keys, integers
// stay exact, and other numbers become floats.
func ParseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeJSON(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

func decodeJSON(d *json.Decoder, depth int) (any, error) {
	if depth > jsonDepthMax {
		return nil, fmt.Errorf("JSON nested deeper than %d", jsonDepthMax)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		return jsonNumber(string(t))
	case json.Delim:
		if t == '[' {
			return decodeArray(d, depth)
		}
		return decodeObject(d, depth)
	}
	return t, nil // nil, bool or string
}

func jsonNumber(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		if v, err := strconv.ParseInt(text, 10, 64); err == nil {
			return v, nil
		}
		if len(text) > bigBitsMax/4 {
			return nil, fmt.Errorf("number of %d digits is too long", len(text))
		}
		v, _ := new(big.Int).SetString(text, 10)
		return v, nil
	}
	f, _ := strconv.ParseFloat(text, 64) // out of range becomes an infinity, as in Python
	return f, nil
}

func decodeArray(d *json.Decoder, depth int) (any, error) {
	list := &List{Items: []any{}}
	for d.More() {
		v, err := decodeJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, v)
	}
	_, err := d.Token()
	return list, err
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	dict := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decodeJSON(d, depth+1)
		if err != nil {
			return nil, err
		}
		dict.Set(key, v)
	}
	_, err := d.Token()
	return dict, err
}

// jsonWriter prints values like Python's json.dumps.
type jsonWriter struct {
	s            *state
	out          strings.Builder
	item, key    string // separators
	indent       string
	ascii, sorts bool
}

// filterToJSON is the tojson of transformers: json.dumps without escaping for HTML.
func filterToJSON(s *state, v any, a args) any {
	w := &jsonWriter{s: s, item: ", ", key: ": "}
	w.ascii = a.flag(0, "ensure_ascii", false)
	switch indent := a.get(1, "indent", nil).(type) {
	case int64:
		w.item = ","
		w.indent = "\n" + strings.Repeat(" ", int(min(max(indent, 0), 64)))
	case string:
		w.item = ","
		w.indent = "\n" + indent
	}
	if l, ok := a.get(2, "separators", nil).(*List); ok && len(l.Items) == 2 {
		w.item, w.key = s.str(l.Items[0]), s.str(l.Items[1])
	}
	w.sorts = a.flag(3, "sort_keys", false)
	w.value(v, 0)
	return w.out.String()
}

func (w *jsonWriter) value(v any, depth int) {
	w.s.enter()
	defer w.s.leave()
	w.s.charge(8)
	switch v := v.(type) {
	case nil:
		w.out.WriteString("null")
	case bool:
		w.out.WriteString(strconv.FormatBool(v))
	case int64:
		w.out.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		w.out.WriteString(v.String())
	case float64:
		w.out.WriteString(jsonFloat(v))
	case string:
		w.text(v)
	case markup:
		w.text(string(v))
	case *List:
		// Python refuses a value that is not a list, but some templates need it.
		w.list(w.s.iterate(v), depth)
	case *Dict:
		w.dict(v, depth)
	default:
		w.s.fail("Object of type %s is not JSON serializable", typeName(v))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

func (w *jsonWriter) separator(text string) {
	w.s.charge(len(text))
	w.out.WriteString(text)
}

func (w *jsonWriter) newline(depth int) {
	if w.indent != "" {
		w.s.charge(len(w.indent) * (depth + 1))
		w.out.WriteByte('\n')
		w.out.WriteString(strings.Repeat(w.indent[1:], depth))
	}
}

func (w *jsonWriter) list(items []any, depth int) {
	if len(items) == 0 {
		w.out.WriteString("[]")
		return
	}
	w.out.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			w.separator(w.item)
		}
		w.newline(depth + 1)
		w.value(item, depth+1)
	}
	w.newline(depth)
	w.out.WriteByte(']')
}

func (w *jsonWriter) dict(v *Dict, depth int) {
	if v.Len() == 0 {
		w.out.WriteString("{}")
		return
	}
	keys := v.keys
	if w.sorts {
		keys = w.s.sorted(keys, false, func(v any) any { return v })
	}
	w.out.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			w.separator(w.item)
		}
		w.newline(depth + 1)
		if text, ok := key.(string); ok {
			w.text(text)
		} else {
			w.out.WriteByte('"')
			w.value(key, depth+1)
			w.out.WriteByte('"')
		}
		w.separator(w.key)
		w.value(v.at(key), depth+1)
	}
	w.newline(depth)
	w.out.WriteByte('}')
}

func (w *jsonWriter) text(text string) {
	w.s.charge(len(text))
	b := &w.out
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\f':
			b.WriteString(`\f`)
		case r < 0x20 || w.ascii && r >= 0x7f && r <= 0xffff && !isNoncharacter(r):
			fmt.Fprintf(b, `\u%04x`, r)
		case w.ascii && r > 0xffff:
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
