package conf

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// isList reports whether t is a list of structs, each a small configuration.
func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// checkList refuses tags and types that a list cannot have. The first key of its
// structs names them, so it must be a text.
func (f *field) checkList() error {
	t := f.value.Type()
	switch {
	case f.initial != "" || f.oneof != "":
		return errors.New("is a list with a tag for plain values")
	case t.Elem().Kind() == reflect.String:
		return nil
	case !isList(t):
		return fmt.Errorf("is a list of %s; lists hold texts or structs", t.Elem())
	}
	item := Of(reflect.New(t.Elem()).Interface())
	if first := t.Elem().Field(0); first.Type.Kind() != reflect.String || first.Tag.Get("yaml") == "" {
		return errors.New("is a list of structs whose first key is no text to name them by")
	}
	for _, inner := range item.fields {
		if strings.Count(inner.key, ".") > 1 || isList(inner.value.Type()) {
			return fmt.Errorf("holds %s, which is nested too deep for one line", inner.key)
		}
	}
	return nil
}

// giveList reads the text of a flag or variable: a whole list, as YAML writes it on
// one line.
func (f *field) giveList(place, origin, text string) []error {
	w := &walker{file: place, origin: origin, schema: &Schema{}}
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		f.misread = true
		_, message, _ := strings.Cut(syntaxError("", err).Error(), "not valid YAML: ")
		return []error{fmt.Errorf("%s is not a list such as [a, b] or [{name: a}, {name: b}]: %s", place, message)}
	}
	var body ast.Node = &ast.NullNode{}
	if len(file.Docs) > 0 && file.Docs[0].Body != nil {
		body = file.Docs[0].Body
	}
	f.origin = origin
	w.list(f, "", body)
	return w.errs
}

// list replaces the list f by that of node. shown is f's key in messages, "" where
// the place names it already.
func (w *walker) list(f *field, shown string, node ast.Node) {
	before := len(w.errs)
	defer func() { f.misread = f.misread || len(w.errs) > before }()
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		w.failPlain(node, shown, "must be a list, such as "+listForm(f.value.Type()))
		return
	}
	list := reflect.MakeSlice(f.value.Type(), len(sequence.Values), len(sequence.Values))
	f.value.Set(list)
	f.items = nil
	if !isList(list.Type()) {
		for i, value := range sequence.Values {
			text, ok := plainValue(value)
			if !ok || text == "" {
				w.failPlain(value, fmt.Sprintf("%s[%d]", shown, i), "must be a text that is not empty; put it in quotes if it holds a colon")
			}
			list.Index(i).SetString(text)
		}
		return
	}
	for i, value := range sequence.Values {
		item := Of(list.Index(i).Addr().Interface())
		item.within = fmt.Sprintf("%s[%d].", shown, i)
		f.items = append(f.items, item)
		inner := &walker{schema: item, file: w.file, origin: w.origin}
		inner.section("", value)
		w.errs = append(w.errs, inner.errs...)
	}
	f.checkNames(func(i int, problem string) {
		w.failPlain(sequence.Values[i], fmt.Sprintf("%s[%d]", shown, i), problem)
	})
}

// failPlain is fail for a node that may have no token, and a key that may be empty.
func (w *walker) failPlain(node ast.Node, shown, problem string) {
	if shown != "" {
		problem = shown + " " + problem
	}
	if node.GetToken() == nil {
		w.errs = append(w.errs, fmt.Errorf("%s: %s", w.file, problem))
		return
	}
	w.fail(node, "%s", problem)
}

func listForm(t reflect.Type) string {
	if isList(t) {
		return "[{name: a}, {name: b}]"
	}
	return "[a, b]"
}

// checkNames calls report for each element that has no name, or the name of an
// element before it, unless the name's tag repeats allows that.
func (f *field) checkNames(report func(i int, problem string)) {
	seen := map[string]int{}
	for i := range f.value.Len() {
		tag := f.value.Type().Elem().Field(0).Tag
		key := tag.Get("yaml")
		name := f.value.Index(i).Field(0).String()
		first, twice := seen[name]
		switch {
		case name == "":
			report(i, "has no "+key)
		case twice && tag.Get("repeats") == "":
			report(i, fmt.Sprintf("has the %s %q, as [%d] has", key, name, first))
		default:
			seen[name] = i
		}
	}
}

// completeItems is complete for the elements of a list of structs.
func (f *field) completeItems(key string) (errs []error) {
	if !isList(f.value.Type()) {
		return nil
	}
	for i := range f.value.Len() {
		item := Of(f.value.Index(i).Addr().Interface())
		errs = append(errs, item.complete(fmt.Sprintf("%s[%d].", key, i))...)
	}
	f.checkNames(func(i int, problem string) { errs = append(errs, fmt.Errorf("%s[%d] %s", key, i, problem)) })
	return errs
}

// flow writes a list on one line, as giveList reads it. Of each element it writes
// the fields that are not at their defaults.
func flow(list reflect.Value) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := range list.Len() {
		if i > 0 {
			b.WriteString(", ")
		}
		if !isList(list.Type()) {
			b.WriteString(yamlString(list.Index(i).String()))
			continue
		}
		flowItem(&b, Of(list.Index(i).Addr().Interface()))
	}
	return b.String() + "]"
}

// flowItem appends {key: value, section: {key: value}}.
func flowItem(b *strings.Builder, s *Schema) {
	b.WriteByte('{')
	separator, open := "", ""
	for _, f := range s.fields {
		if f.text() == f.initialText() {
			continue
		}
		if section := f.section(); section != open {
			if open != "" {
				b.WriteString("}")
			}
			b.WriteString(separator)
			separator = ""
			if section != "" {
				b.WriteString(section + ": {")
			}
			open = section
		}
		text := f.text()
		if f.value.Kind() == reflect.String {
			text = yamlString(text)
		}
		b.WriteString(separator + f.key[len(f.section()):][min(1, len(f.section())):] + ": " + text)
		separator = ", "
	}
	if open != "" {
		b.WriteByte('}')
	}
	b.WriteByte('}')
}

// yamlItems appends a list of structs as a block.
func (f *field) yamlItems(b *strings.Builder, indent, name string) {
	line := indent + name + ":"
	if f.origin != "" {
		line += "  # from " + f.origin
	}
	b.WriteString(line + "\n")
	for _, item := range f.items {
		lead := indent + "  - "
		for text := range strings.Lines(item.YAML()) {
			b.WriteString(lead + text)
			lead = indent + "    "
		}
	}
}

// empty reports whether the value is zero or an empty list.
func (f *field) empty() bool {
	return f.value.IsZero() || f.value.Kind() == reflect.Slice && f.value.Len() == 0
}

// secretMark stands for a secret wherever a value is shown.
const secretMark = `"…"`

// hidden is the text that is shown for a secret.
func (f *field) hidden() string {
	if f.value.Kind() != reflect.Slice {
		return secretMark
	}
	return "[" + strings.TrimSuffix(strings.Repeat(secretMark+", ", f.value.Len()), ", ") + "]"
}

// hasSecret reports whether the field is a secret, or its elements hold one.
func (f *field) hasSecret() bool {
	if f.secret || !isList(f.value.Type()) {
		return f.secret
	}
	for _, inner := range Of(reflect.New(f.value.Type().Elem()).Interface()).fields {
		if inner.hasSecret() {
			return true
		}
	}
	return false
}
