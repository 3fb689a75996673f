package conf

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Args returns the flags that pass on to another process all fields whose key
// begins with prefix and that are not at their defaults. Secrets are left out,
// since everybody can read a process's arguments.
func (s *Schema) Args(prefix string) []string {
	var args []string
	for _, f := range s.fields {
		if strings.HasPrefix(f.key, prefix) && f.text() != f.initialText() && !f.hasSecret() {
			args = append(args, "--"+f.key+"="+f.text())
		}
	}
	return args
}

func (f *field) text() string { return formatText(f.value, f.key) }

// initialText is the default in the form of text, so that 1024KiB equals 1MiB.
func (f *field) initialText() string {
	scratch := reflect.New(f.value.Type()).Elem()
	if f.initial != "" {
		setText(scratch, f.key, f.initial)
	}
	return formatText(scratch, f.key)
}

// YAML returns the current values as a file that Load can read. A comment beside
// each value that is not the default says where it came from.
func (s *Schema) YAML() string {
	var b strings.Builder
	var open []string
	for _, f := range s.fields {
		path := strings.Split(f.key, ".")
		for depth, name := range path[:len(path)-1] {
			if depth >= len(open) || open[depth] != name {
				open = append(open[:depth:depth], name)
				fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), name)
			}
		}
		open = open[:len(path)-1]
		if len(f.items) > 0 {
			f.yamlItems(&b, strings.Repeat("  ", len(path)-1), path[len(path)-1])
			continue
		}
		line := strings.Repeat("  ", len(path)-1) + path[len(path)-1] + ": " + f.yamlText()
		if f.empty() { // Load gives the same value where the key is missing
			line = strings.Repeat("  ", len(path)-1) + "# " + strings.TrimLeft(line, " ")
		}
		if f.origin != "" {
			line += "  # from " + f.origin
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

var plainText = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

func (f *field) yamlText() string {
	switch {
	case f.secret && !f.empty():
		return f.hidden()
	case f.value.Kind() == reflect.String:
		return yamlString(f.text())
	}
	return f.text()
}

func yamlString(text string) string {
	if text == "null" || !plainText.MatchString(text) {
		return strconv.Quote(text)
	}
	return text
}

// Table returns the reference in Markdown: one table for the top and one for each
// section, each followed by a table for each list of structs in it.
func (s *Schema) Table() string {
	var b strings.Builder
	const head = "\n| key | default | meaning |\n|---|---|---|\n"
	section := "-"
	var lists []*field
	endSection := func() {
		for _, f := range lists {
			fmt.Fprintf(&b, "\nEach element of `%s` holds:\n%s", f.key, head)
			for _, inner := range Of(reflect.New(f.value.Type().Elem()).Interface()).fields {
				inner.row(&b)
			}
		}
		lists = nil
	}
	for _, f := range s.fields {
		if at := f.section(); at != section {
			endSection()
			section = at
			if section != "" {
				fmt.Fprintf(&b, "\n### %s\n", section)
			}
			b.WriteString(head)
		}
		f.row(&b)
		if isList(f.value.Type()) {
			lists = append(lists, f)
		}
	}
	endSection()
	return strings.TrimLeft(b.String(), "\n")
}

// row appends the field's row of the reference.
func (f *field) row(b *strings.Builder) {
	initial := ""
	if f.initial != "" {
		initial = "`" + f.initialText() + "`"
	}
	help := f.help
	if f.oneof != "" {
		help += " One of " + f.choices() + "."
	}
	if allowed := f.limits.String(); allowed != "" {
		help += " Allowed: " + allowed + "."
	}
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.key, initial, strings.ReplaceAll(help, "|", `\|`))
}

// Values are the texts of all fields by key, secrets included: they are for
// comparing, not for showing.
func (s *Schema) Values() map[string]string {
	values := make(map[string]string, len(s.fields))
	for _, f := range s.fields {
		values[f.key] = f.text()
	}
	return values
}
