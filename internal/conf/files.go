package conf

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
)

// File is one of several files that are a configuration together.
type File struct {
	Name string
	Text []byte
}

// LoadFiles sets the struct from files that are one configuration together, and
// fills the rest with defaults. Lists of several files are put together, in the order
// of the files; a plain value may stand in one file only. The error holds all
// mistakes, one a line, each with its place.
func (s *Schema) LoadFiles(files []File) error {
	var errs []error
	s.givenBy = map[string][]string{}
	for _, file := range files {
		part := Of(reflect.New(s.root).Interface())
		errs = append(errs, part.loadFile(file.Name, file.Text)...)
		for i, f := range part.fields {
			if f.origin != "" {
				s.givenBy[file.Name] = append(s.givenBy[file.Name], f.key)
			}
			if f.origin != "" || f.misread {
				errs = append(errs, s.fields[i].join(f)...)
			}
		}
	}
	for _, f := range s.fields {
		f.itemsAgain()
		if isList(f.value.Type()) && len(files) > 1 && !f.misread {
			f.checkNames(func(i int, problem string) {
				errs = append(errs, fmt.Errorf("%s: %s[%d] %s", f.items[i].begins(), f.key, i, problem))
			})
		}
	}
	return errors.Join(append(errs, s.finish()...)...)
}

// join adds what part, the same field of one file, holds.
func (f *field) join(part *field) []error {
	f.misread = f.misread || part.misread
	switch {
	case part.value.Kind() == reflect.Slice:
		f.value.Set(reflect.AppendSlice(f.value, part.value))
		f.items = append(f.items, part.items...)
		f.origin = cmp.Or(f.origin, part.origin)
	case f.origin != "" && part.origin != "":
		return []error{fmt.Errorf("%s: %s is set at %s already", part.origin, f.key, f.origin)}
	case part.origin != "":
		f.value.Set(part.value)
		f.origin = part.origin
	}
	return nil
}

// itemsAgain makes the schemas of a list's elements point to the elements where
// they are now, and keeps where each value came from.
func (f *field) itemsAgain() {
	for i, old := range f.items {
		item := Of(f.value.Index(i).Addr().Interface())
		item.within = fmt.Sprintf("%s[%d].", f.key, i)
		for j, inner := range item.fields {
			inner.origin, inner.misread, inner.items = old.fields[j].origin, old.fields[j].misread, old.fields[j].items
		}
		f.items[i] = item
	}
}

// begins is where an element of a list begins.
func (s *Schema) begins() string {
	for _, f := range s.fields {
		if f.origin != "" {
			return f.origin
		}
	}
	return ""
}

// Given lists the keys that a source has set, in the order of the struct, each with
// its place.
func (s *Schema) Given() (keys, places []string) {
	for _, f := range s.fields {
		if f.origin != "" {
			keys, places = append(keys, f.key), append(places, f.origin)
		}
	}
	return keys, places
}

// GivenBy lists the keys that one of the files of LoadFiles has set.
func (s *Schema) GivenBy(file string) []string { return s.givenBy[file] }
