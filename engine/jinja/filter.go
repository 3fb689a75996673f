package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

type filterFunc func(s *state, v any, a args) any

// filters is filled in init because filters and tests refer to each other.
var filters map[string]filterFunc

func init() {
	filters = map[string]filterFunc{
		"abs": filterAbs, "attr": filterAttr, "batch": filterBatch, "bool": filterBool,
		"capitalize": textFilter("capitalize"), "center": textFilter("center"),
		"count": filterLength, "d": filterDefault, "default": filterDefault, "dictsort": filterDictsort,
		"e": filterEscape, "escape": filterEscape,
		"forceescape": func(s *state, v any, _ args) any { return s.escaped(s.str(v)) },
		"first":       filterFirst, "float": filterFloat,
		"format": filterFormat, "from_json": filterFromJSON, "fromjson": filterFromJSON,
		"indent": filterIndent, "int": filterInt, "items": filterItems, "join": filterJoin,
		"last": filterLast, "length": filterLength, "list": filterList, "lower": textFilter("lower"),
		"map": filterMap, "max": filterMax, "min": filterMin,
		"reject": selecting(false, false), "rejectattr": selecting(true, false),
		"replace": filterReplace, "reverse": filterReverse, "round": filterRound,
		"safe":   func(s *state, v any, _ args) any { return markup(s.str(v)) },
		"select": selecting(false, true), "selectattr": selecting(true, true),
		"sort": filterSort, "string": filterString,
		"sum": filterSum, "title": filterTitle, "tojson": filterToJSON,
		"trim": textFilter("strip"), "unique": filterUnique, "upper": textFilter("upper"),
		"wordcount": func(s *state, v any, _ args) any {
			isWord := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }
			return int64(len(strings.FieldsFunc(s.printed(v), func(r rune) bool { return !isWord(r) })))
		},
		"groupby": filterGroupby, "slice": filterSlice,
		"filesizeformat": filterFileSize, "striptags": filterStripTags, "truncate": filterTruncate, "urlencode": filterURLEncode,
	}
}

// textFilter returns a filter that applies a method of strings to the printed value.
func textFilter(name string) filterFunc {
	return func(s *state, v any, a args) any { return textMethods[name](s, s.printed(v), a) }
}

// filterAttr looks up attributes only. The keys of a dict are not attributes.
func filterAttr(s *state, v any, a args) any {
	name := a.text(s, 0, "name", "")
	if d, ok := v.(*Dict); ok {
		if m := method(d, name); m != nil {
			return m
		}
		return Undefined{"'dict' object has no attribute '" + name + "'"}
	}
	return s.attr(v, name)
}

func filterBool(_ *state, v any, _ args) any { return truth(v) }

func filterBatch(s *state, v any, a args) any {
	items, n := s.iterate(v), max(a.integer(s, 0, "linecount", 1), 1)
	fill := a.get(1, "fill_with", nil)
	out := &List{kind: iterator}
	for batch := range slices.Chunk(items, n) {
		s.charge(32)
		batch = slices.Clip(batch)
		for fill != nil && len(batch) < n {
			s.charge(16)
			batch = append(batch, fill)
		}
		out.Items = append(out.Items, &List{Items: batch})
	}
	return out
}

func filterDefault(_ *state, v any, a args) any {
	_, undefined := v.(Undefined)
	if undefined || a.flag(1, "boolean", false) && !truth(v) {
		return a.get(0, "default_value", "")
	}
	return v
}

func filterEscape(s *state, v any, _ args) any { return s.escaped(v) }

// filterString is Python's str. It keeps markup.
func filterString(s *state, v any, _ args) any {
	if m, ok := v.(markup); ok {
		return m
	}
	return s.str(v)
}

func filterFormat(s *state, v any, a args) any {
	if len(a.named) > 0 && len(a.pos) > 0 {
		s.fail("can't handle positional and keyword arguments at the same time")
	}
	if len(a.named) == 0 {
		return s.percent(s.str(v), &List{Items: a.pos, Tuple: true})
	}
	d := NewDict()
	for _, n := range a.named {
		d.Set(n.name, n.value)
	}
	return s.percent(s.str(v), d)
}

func filterFromJSON(s *state, v any, _ args) any {
	text := s.str(v)
	s.charge(16 * len(text))
	parse := s.fromJSON
	if parse == nil {
		parse = func(text string) (any, error) { return ParseJSON([]byte(text)) }
	}
	value, err := parse(text)
	if err != nil {
		s.fail("from_json: %v", err)
	}
	return value
}

func filterIndent(s *state, v any, a args) any {
	pad := ""
	if text, ok := a.get(0, "width", nil).(string); ok {
		pad = text
	} else {
		n := a.integer(s, 0, "width", 4)
		s.chargeTimes(1, int64(n))
		pad = strings.Repeat(" ", max(n, 0))
	}
	text, ok := v.(string)
	if !ok {
		s.fail("indent needs str, not %s", typeName(v))
	}
	rows := lines(s, text+"\n", args{}).Items
	s.chargeTimes(len(pad)+1, int64(len(rows)))
	s.charge(len(text))
	var b strings.Builder
	for i, row := range rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i > 0 && (row != "" || a.flag(2, "blank", false)) || i == 0 && a.flag(1, "first", false) {
			b.WriteString(pad)
		}
		b.WriteString(row.(string))
	}
	return b.String()
}

// filterTitle upper-cases what follows a space, a hyphen or an opening bracket.
func filterTitle(s *state, v any, _ args) any {
	isWord := func(r rune) bool { return !isSpace(r) && !strings.ContainsRune("-({[<", r) }
	return title(s, s.printed(v), isWord, func(r rune) string { return upper(string(r)) })
}

// filterReplace is str.replace. It prints values of other types first.
func filterReplace(s *state, v any, a args) any {
	texts := []any{s.printed(a.get(0, "old", "")), s.printed(a.get(1, "new", "")), a.get(2, "count", int64(-1))}
	if texts[2] == nil {
		texts[2] = int64(-1)
	}
	return textReplace(s, s.printed(v), args{pos: texts})
}

func filterLength(s *state, v any, _ args) any { return int64(s.length(v)) }

func filterFirst(s *state, v any, _ args) any {
	if text, ok := v.(string); ok {
		_, size := utf8.DecodeRuneInString(text)
		return text[:size]
	}
	if l, ok := v.(*List); ok && l.kind == iterator && len(l.Items) > 0 {
		first := l.Items[0]
		l.Items = l.Items[1:]
		return first
	}
	if items := s.iterate(v); len(items) > 0 {
		return items[0]
	}
	return Undefined{"No first item, sequence was empty."}
}

func filterLast(s *state, v any, _ args) any {
	if text, ok := v.(string); ok {
		_, size := utf8.DecodeLastRuneInString(text)
		return text[len(text)-size:]
	}
	if l, ok := v.(*List); ok && l.kind == iterator {
		s.fail("'generator' object is not reversible")
	}
	if items := s.iterate(v); len(items) > 0 {
		return items[len(items)-1]
	}
	return Undefined{"No last item, sequence was empty."}
}

func filterItems(s *state, v any, _ args) any {
	if _, undefined := v.(Undefined); undefined {
		return &List{kind: iterator}
	}
	d, ok := v.(*Dict)
	if !ok {
		s.fail("Can only get item pairs from a mapping.")
	}
	pairs := s.pairs(d)
	pairs.kind = iterator
	return pairs
}

// pairs lists the (key, value) pairs of a dict.
func (s *state) pairs(d *Dict) *List {
	s.charge(64 * d.Len())
	out := &List{Items: make([]any, 0, d.Len()), kind: itemsView}
	for _, key := range d.keys {
		out.Items = append(out.Items, &List{Items: []any{key, d.at(key)}, Tuple: true})
	}
	return out
}

func filterReverse(s *state, v any, _ args) any {
	if text, ok := v.(string); ok {
		return s.slice(text, nil, nil, int64(-1))
	}
	items := s.iterate(v)
	s.charge(16 * len(items))
	items = slices.Clone(items)
	slices.Reverse(items)
	return &List{Items: items, kind: iterator}
}
