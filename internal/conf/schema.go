package conf

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// envPrefix starts every environment variable that is read.
const envPrefix = "FOREBAY_"

// Schema is the set of fields of one configuration struct.
type Schema struct {
	root       reflect.Type
	checked    bool                // the tags of root are known to be right
	givenBy    map[string][]string // the keys that each file of LoadFiles has set
	within     string              // of an element of a list: its place, such as "tenants[1]."
	fields     []*field            // in the order of the struct
	byKey      map[string]*field
	sections   map[string]bool // every key that holds further keys; "" is the top
	validators []validator     // outer structs before inner
}

type field struct {
	key     string // dotted path
	byFlag  string // the flag that set it: its own or an alias
	initial string // default as text
	help    string
	oneof   string // allowed texts, with spaces between
	limits  limits
	value   reflect.Value
	origin  string    // where its value came from; "" is the default
	misread bool      // the given value was refused
	secret  bool      // never shown
	once    bool      // two flags that differ are a mistake
	items   []*Schema // of a list of structs, each element's
}

// validator is the Mistakes method of a struct that has one.
type validator struct {
	section  string // its key
	validate func() error
}

// checkedTypes are the structs whose tags were checked once.
var checkedTypes sync.Map

// Of reads the tags of the struct that p points to. It panics on a tag that is
// missing or wrong, since that is a mistake in our code.
func Of(p any) *Schema {
	s := &Schema{root: reflect.TypeOf(p).Elem(), byKey: map[string]*field{}, sections: map[string]bool{}}
	_, s.checked = checkedTypes.Load(s.root)
	s.add("", reflect.ValueOf(p).Elem())
	vars := map[string]string{}
	for _, f := range s.fields {
		if other, ok := vars[f.env()]; ok {
			panic(fmt.Sprintf("conf: %s and %s share the variable %s", f.key, other, f.env()))
		}
		vars[f.env()] = f.key
	}
	checkedTypes.Store(s.root, true)
	return s
}

func (s *Schema) add(section string, v reflect.Value) {
	s.sections[section] = true
	if own, ok := v.Addr().Interface().(interface{ Mistakes() error }); ok {
		s.validators = append(s.validators, validator{section, own.Mistakes})
	}
	if _, ok := v.Addr().Interface().(interface{ Validate() error }); ok {
		panic(fmt.Sprintf("conf: %s has a method Validate, which nobody calls: name it Mistakes", v.Type()))
	}
	for i := range v.NumField() {
		t, value := v.Type().Field(i), v.Field(i)
		key := t.Tag.Get("yaml")
		if key == "" || key == "-" {
			continue
		}
		if section != "" {
			key = section + "." + key
		}
		if value.Kind() == reflect.Struct {
			s.add(key, value)
			continue
		}
		f := &field{key: key, initial: t.Tag.Get("default"), help: t.Tag.Get("help"), oneof: t.Tag.Get("oneof"), value: value, secret: t.Tag.Get("secret") == "true", once: t.Tag.Get("once") == "true"}
		var err error
		if !s.checked {
			err = f.checkTags()
		}
		if err == nil {
			f.limits, err = f.readLimits(t.Tag.Get("range"))
		}
		if err != nil {
			panic(fmt.Sprintf("conf: %s: %v", key, err))
		}
		s.fields, s.byKey[key] = append(s.fields, f), f
	}
}

func (f *field) checkTags() error {
	switch {
	case f.help == "":
		return fmt.Errorf("has no help tag")
	case f.value.Kind() == reflect.Bool && f.initial == "true":
		return fmt.Errorf("is a bool with the default true, which nobody could turn off")
	case f.value.Kind() == reflect.Slice:
		return f.checkList()
	}
	scratch, text := reflect.New(f.value.Type()).Elem(), f.initial
	if text == "" {
		text = map[bool]string{true: "false", false: "0"}[f.value.Kind() == reflect.Bool]
		if scratch.Kind() == reflect.Int64 {
			text = formatText(scratch, f.key)
		}
	}
	return setText(scratch, f.key, text)
}

func (f *field) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(f.key, ".", "_"))
}

// section is the key of the struct that holds the field.
func (f *field) section() string { return f.key[:max(0, strings.LastIndexByte(f.key, '.'))] }

func (f *field) choices() string { return strings.Join(strings.Fields(f.oneof), ", ") }

func (f *field) allows(text string) bool { return slices.Contains(strings.Fields(f.oneof), text) }

// set parses text from origin, and refuses a zero that would silently become the
// default.
func (f *field) set(origin, text string) (err error) {
	defer func() { f.misread = f.misread || err != nil }()
	if err := setText(f.value, f.key, text); err != nil {
		return err
	}
	if f.value.IsZero() && f.text() != f.initialText() {
		return fmt.Errorf("%q is not allowed: leave it out for the default, %s", text, f.initial)
	}
	if f.oneof != "" && !f.allows(text) {
		return fmt.Errorf("%q is not one of %s", text, f.choices())
	}
	f.origin = origin
	return f.limits.check(f.value, text)
}

// Flags defines a flag for each field and for each alias (a short name by key), and
// returns the map for Source.Flags, which parsing fills.
func (s *Schema) Flags(set *flag.FlagSet, aliases map[string]string) map[string]string {
	given := map[string]string{}
	define := func(name string, f *field) {
		take := func(text string) error {
			if before, twice := given[f.key]; twice && f.once && before != text {
				return fmt.Errorf("it is given twice, as %q before; give it once", before)
			}
			given[f.key], f.byFlag = text, "--"+name
			return nil
		}
		help := f.help
		if f.initial != "" {
			help += " (default " + f.initialText() + ")"
		}
		if f.value.Kind() == reflect.Bool {
			set.BoolFunc(name, help, take)
		} else {
			set.Func(name, help, take)
		}
	}
	for _, f := range s.fields {
		define(f.key, f)
	}
	for name, key := range aliases {
		if name != key {
			define(name, s.byKey[key])
		}
	}
	return given
}
