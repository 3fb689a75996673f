package conf

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Source is where values come from, the weakest first.
type Source struct {
	// FileName is for messages; File is its YAML text, nil for none.
	FileName string
	File     []byte
	// Environ holds NAME=value pairs; pairs of other programs are ignored.
	Environ []string
	// Flags are the texts of the flags by key, from Schema.Flags.
	Flags map[string]string
}

// Load sets the struct from its sources and fills the rest with defaults. The
// error holds all mistakes, one a line, each with its place.
func (s *Schema) Load(from Source) error {
	errs := append(s.loadFile(from.FileName, from.File), s.loadEnviron(from.Environ)...)
	for _, f := range s.fields {
		if text, ok := from.Flags[f.key]; ok {
			errs = append(errs, f.give(f.byFlag, "flag "+f.byFlag, text)...)
		}
	}
	return errors.Join(append(errs, s.finish()...)...)
}

// give sets f from text, which holds a whole list where f is one. Each mistake
// begins with place.
func (f *field) give(place, origin, text string) []error {
	if f.value.Kind() == reflect.Slice {
		return f.giveList(place, origin, text)
	}
	if err := f.set(origin, text); err != nil {
		return []error{fmt.Errorf("%s: %w", place, err)}
	}
	return nil
}

// finish sets the fields that were not given to their defaults, and calls the
// validators.
func (s *Schema) finish() (errs []error) {
	for _, f := range s.fields {
		if f.initial != "" && f.value.IsZero() {
			setText(f.value, f.key, f.initial) // parsed once by Of
		}
		for _, item := range f.items {
			errs = append(errs, item.finish()...)
		}
	}
	for _, v := range s.validators {
		if !s.misread(v.section) { // else it would check a default instead of the value that was meant
			errs = append(errs, s.place(v.section, v.validate()))
		}
	}
	return errs
}

// misread reports whether the value of some field of this section was refused.
func (s *Schema) misread(section string) bool {
	return slices.ContainsFunc(s.fields, func(f *field) bool { return f.misread && f.section() == section })
}

// Place adds, to each line of err that begins with a key, the place where the value
// of that key came from.
func (s *Schema) Place(err error) error { return s.place("", err) }

// PlaceIn is Place for keys that may lack their section, which it adds.
func (s *Schema) PlaceIn(section string, err error) error { return s.place(section, err) }

// place is Place for keys that may lack their section, which it adds.
func (s *Schema) place(section string, err error) error {
	if err == nil {
		return nil
	}
	var placed []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, _, _ := strings.Cut(line, " ")
		key = strings.TrimSuffix(key, ":")
		origin := s.originOf(key)
		if origin == "" && section != "" {
			if origin = s.originOf(section + "." + key); origin != "" {
				key, line = section+"."+key, section+"."+line
			}
		}
		if origin != "" {
			place, flag := strings.CutPrefix(origin, "flag ")
			line = s.within + line
			if flag && s.byKey[key] != nil {
				line = strings.TrimPrefix(line, key+": ") // which the flag says
			}
			line = strings.TrimPrefix(place, "environment ") + ": " + line
		}
		placed = append(placed, errors.New(line))
	}
	return errors.Join(placed...)
}

// originOf is where the value of key came from; "" for a default, and for a text
// that is not a key. For a key in an element of a list, such as tenants[1].keys, it
// is the place of that key, or else the place where the element begins.
func (s *Schema) originOf(key string) string {
	list, rest, element := strings.Cut(key, "[")
	f := s.byKey[list]
	if f == nil {
		return ""
	}
	number, rest, _ := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if !element || err != nil || i < 0 || i >= len(f.items) {
		return f.origin
	}
	if origin := f.items[i].originOf(strings.TrimPrefix(rest, ".")); origin != "" {
		return origin
	}
	return cmp.Or(f.items[i].fields[0].origin, f.origin)
}

// loadEnviron ignores a FOREBAY_ variable that is like no known one, since cluster
// managers inject variables that begin with the name of a service.
func (s *Schema) loadEnviron(environ []string) (errs []error) {
	vars := map[string]*field{}
	for _, f := range s.fields {
		vars[f.env()] = f
	}
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || text == "" {
			continue
		}
		if f := vars[name]; f == nil {
			if near := Nearest(name, keysOf(vars), 2); near != "" {
				errs = append(errs, fmt.Errorf("%s is not a known variable; did you mean %s?", name, near))
			}
		} else {
			errs = append(errs, f.give(name, "environment "+name, text)...)
		}
	}
	return errs
}

// Vars returns the names of all environment variables that Load reads.
func (s *Schema) Vars() []string {
	var names []string
	for _, f := range s.fields {
		names = append(names, f.env())
	}
	return names
}

func (s *Schema) loadFile(name string, text []byte) []error {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return []error{syntaxError(name, err)}
	}
	w := &walker{schema: s, file: name}
	for i, doc := range file.Docs {
		if i > 0 && doc.Body != nil {
			w.fail(doc.Body, "a second YAML document is not allowed")
		} else if doc.Body != nil {
			w.section("", doc.Body)
		}
	}
	return w.errs
}

// syntaxError makes one line of the parser's message.
func syntaxError(name string, err error) error {
	var line, column int
	message, _, _ := strings.Cut(err.Error(), "\n")
	if _, scan := fmt.Sscanf(message, "[%d:%d]", &line, &column); scan != nil {
		return fmt.Errorf("%s: %s", name, message)
	}
	_, message, _ = strings.Cut(message, "] ")
	return fmt.Errorf("%s:%d: not valid YAML: %s", name, line, message)
}

// walker applies one YAML document to the schema and collects the mistakes.
type walker struct {
	schema *Schema
	file   string
	// origin is set where the text is not a file, but the value of a flag or a
	// variable; then file is the name of that.
	origin string
	errs   []error
}

func (w *walker) fail(at ast.Node, format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf("%s: %s", w.place(at), fmt.Sprintf(format, args...)))
}

func (w *walker) place(at ast.Node) string {
	if w.origin != "" {
		return w.file
	}
	return fmt.Sprintf("%s:%d", w.file, at.GetToken().Position.Line)
}

func (w *walker) section(prefix string, node ast.Node) {
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.NullNode, *ast.CommentGroupNode: // everything is commented out
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		shown := strings.TrimSuffix(w.schema.within+prefix, ".")
		if shown == "" {
			shown = "the file"
		}
		w.fail(node, "%s must hold keys and values", shown)
	}
	for _, pair := range pairs {
		key := pair.Key.GetToken().Value
		if prefix != "" {
			key = prefix + "." + key
		}
		if f := w.schema.byKey[key]; f != nil {
			w.leaf(f, pair)
		} else if w.schema.sections[key] {
			w.section(key, pair.Value)
		} else {
			w.fail(pair.Key, "%s%s is not a known key%s", w.schema.within, key, w.schema.suggest(key))
		}
	}
}

func (w *walker) leaf(f *field, pair *ast.MappingValueNode) {
	shown := w.schema.within + f.key
	if _, null := pair.Value.(*ast.NullNode); null {
		w.fail(pair.Key, "%s has no value: give one or remove the key", shown)
		return
	}
	origin := w.origin
	if origin == "" {
		origin = w.place(pair.Key)
	}
	if f.value.Kind() == reflect.Slice {
		f.origin = origin
		w.list(f, shown, pair.Value)
		return
	}
	text, ok := plainValue(pair.Value)
	if !ok {
		w.fail(pair.Key, "%s must be one plain value", shown)
		return
	}
	if err := f.set(origin, text); err != nil {
		w.fail(pair.Key, "%s: %v", shown, err)
	}
}

// plainValue is the text of a node that holds one value.
func plainValue(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// suggest proposes a known key for an unknown one: a similar key, or one of the same
// name in another section.
func (s *Schema) suggest(key string) string {
	keys := append(keysOf(s.byKey), keysOf(s.sections)...)
	near := Nearest(key, keys, min(3, len(key)/3))
	last := "." + key[strings.LastIndexByte(key, '.')+1:]
	for _, f := range s.fields {
		if near == "" && strings.HasSuffix(f.key, last) {
			near = f.key
		}
	}
	if near == "" {
		return ""
	}
	return "; did you mean " + s.within + near + "?"
}

func keysOf[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		if k != "" {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// Nearest returns the candidate that is nearest to a mistyped word, or "" where none
// is within limit, an edit distance.
func Nearest(word string, candidates []string, limit int) string {
	best := ""
	for _, c := range candidates {
		if d := editDistance(word, c); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
