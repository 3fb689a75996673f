package conf

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// limits are the least and the greatest number that a field may hold. An invalid
// reflect.Value means that there is no limit on that side.
type limits struct {
	least, greatest         reflect.Value
	leastText, greatestText string
}

// readLimits parses a range tag, "1..128", "1.." or "..1s", in the form of the
// field's own values.
func (f *field) readLimits(tag string) (l limits, err error) {
	if tag == "" {
		return l, nil
	}
	first, last, ok := strings.Cut(tag, "..")
	if !ok || first+last == "" {
		return l, fmt.Errorf("has the range tag %q, which is not FROM..TO", tag)
	}
	read := func(text string) (v reflect.Value, shown string) {
		if text == "" || err != nil {
			return v, ""
		}
		v = reflect.New(f.value.Type()).Elem()
		err = setText(v, f.key, text)
		return v, formatText(v, f.key)
	}
	l.least, l.leastText = read(first)
	l.greatest, l.greatestText = read(last)
	if err == nil && f.initial != "" {
		initial := reflect.New(f.value.Type()).Elem()
		err = errors.Join(setText(initial, f.key, f.initial), l.check(initial, f.initial))
	}
	return l, err
}

// check refuses a number outside the limits. Zero is allowed: it stands for the
// default, or has a meaning of its own.
func (l limits) check(v reflect.Value, text string) error {
	if v.IsZero() || (!l.least.IsValid() || !less(v, l.least)) && (!l.greatest.IsValid() || !less(l.greatest, v)) {
		return nil
	}
	return fmt.Errorf("%s is out of range; allowed is %s", text, l)
}

func less(a, b reflect.Value) bool {
	if a.CanFloat() {
		return a.Float() < b.Float()
	}
	return a.Int() < b.Int()
}

// String is the range in words, "" where there are no limits.
func (l limits) String() string {
	switch {
	case l.leastText != "" && l.greatestText != "":
		return l.leastText + " to " + l.greatestText
	case l.leastText != "":
		return l.leastText + " or more"
	case l.greatestText != "":
		return "at most " + l.greatestText
	}
	return ""
}

// Complete fills the struct that p points to with defaults and checks all of it. It
// is for structs that no Load has read; section is the name of the struct in keys.
// The error holds all mistakes, one a line, each beginning with its key.
func Complete(section string, p any) error {
	Fill(p)
	return errors.Join(Of(p).complete(section + ".")...)
}

// complete checks all fields, and those of lists; within is put before each key.
func (s *Schema) complete(within string) (errs []error) {
	for _, f := range s.fields {
		err := f.limits.check(f.value, f.text())
		if (f.value.CanInt() && f.value.Int() < 0) || (f.value.CanFloat() && f.value.Float() < 0) {
			err = fmt.Errorf("%s must not be negative", f.text())
		}
		if f.oneof != "" && f.value.String() != "" && !f.allows(f.value.String()) {
			err = fmt.Errorf("%q is not one of %s", f.value.String(), f.choices())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", within, f.key, err))
			f.misread = true
		}
		errs = append(errs, f.completeItems(within+f.key)...)
	}
	for _, v := range s.validators {
		if s.misread(v.section) {
			continue
		}
		if err := v.validate(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
