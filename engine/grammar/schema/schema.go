// Package schema turns a JSON Schema into a grammar: every text of the grammar
// is an instance of the schema, and nearly every instance, with its keys in the
// schema's order, is a text of the grammar.
//
// It works in two stages. The first reads the schema (2020-12 and the drafts
// back to 04) into shapes: for each JSON type the alternatives that are
// allowed, with the children as sets of schemas that all hold. Intersection
// (allOf, siblings, $ref) joins sets, and is computed where a set is looked
// into, so recursion stays finite. Negation (not, oneOf, if) is computed in the
// same shapes. The second stage lowers shapes to rules and terminals.
//
// What cannot be enforced is refused by its JSON pointer and keyword. Nothing
// is dropped silently: annotations are ignored by a table, and words that are
// unknown to the standard are listed in the result, or refused when strict.
package schema

// Options are what a caller decides about a schema.
type Options struct {
	// Strict refuses words and formats that are not enforced, instead of ignoring them as the standard says.
	Strict bool
	// Compact allows no white space between tokens.
	Compact bool
	// OneLine allows no line ends, and one space after a colon or a comma.
	OneLine bool
	Limits  Limits
}

// Limits bound a schema and the work of compiling it. Zero fields mean DefaultLimits.
type Limits struct {
	Bytes        int // of the schema's text
	Nesting      int // of the schema's text
	Properties   int // listed by all objects together
	EnumValues   int // of all enums together
	EnumBytes    int // of all enums together
	Alternatives int // of one type at one place, after combination
	Work         int // steps of combining; a step is some tens of nanoseconds
}

// DefaultLimits are the limits where nothing else is said.
func DefaultLimits() Limits {
	return Limits{Bytes: 1 << 20, Nesting: 64, Properties: 5000, EnumValues: 10000, EnumBytes: 1 << 20, Alternatives: 512, Work: 1_000_000}
}

func (l *Limits) fill() {
	d := DefaultLimits()
	for _, f := range []struct{ have, def *int }{
		{&l.Bytes, &d.Bytes}, {&l.Nesting, &d.Nesting}, {&l.Properties, &d.Properties}, {&l.EnumValues, &d.EnumValues},
		{&l.EnumBytes, &d.EnumBytes}, {&l.Alternatives, &d.Alternatives}, {&l.Work, &d.Work},
	} {
		if *f.have <= 0 {
			*f.have = *f.def
		}
	}
}

// A Refusal says which keyword cannot be enforced, and why.
type Refusal struct {
	Pointer string // the JSON pointer of the keyword in the schema
	Keyword string // "" only where the text is no JSON or too long
	Reason  string // a clause: what is not supported
}

func (r *Refusal) Error() string {
	if r.Keyword == "" {
		return r.Reason
	}
	return "schema" + r.Pointer + ": " + r.Keyword + ": " + r.Reason
}

// An Ignored word is in the schema and has no effect, as the standard says.
type Ignored struct{ Pointer, Keyword string }

// refuse ends a compilation; Compile recovers it.
func refuse(at *value, reason string) {
	panic(&Refusal{Pointer: at.pointer(), Keyword: keywordOf(at), Reason: reason})
}

// keywordOf is the nearest keyword at or above a value: a step that is an
// index or a property's name is no keyword.
func keywordOf(v *value) string {
	for ; v != nil && v.parent != nil; v = v.parent {
		if v.parent.kind == kindObject {
			return v.step
		}
	}
	return ""
}
