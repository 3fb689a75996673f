package conf

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Args returns the flags that give another process every field under the key
// prefix that is not at its default.
func (s *Schema) Args(prefix string) []string {
	var args []string
	for _, f := range s.fields {
		if strings.HasPrefix(f.key, prefix) && f.text() != f.initialText() {
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

// YAML returns the values in force as a file that Load reads back, each that is
// not the default with a comment that says where it came from.
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
		line := strings.Repeat("  ", len(path)-1) + path[len(path)-1] + ": " + f.yamlText()
		if f.value.IsZero() { // its zero has a meaning, or it is unset: both are what Load makes of its absence
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
	if f.value.Kind() == reflect.String && (f.text() == "null" || !plainText.MatchString(f.text())) {
		return strconv.Quote(f.text())
	}
	return f.text()
}

// Table returns the reference in Markdown: one table for the top and one for
// each section.
func (s *Schema) Table() string {
	var b strings.Builder
	section := "-"
	for _, f := range s.fields {
		if at := f.section(); at != section {
			section = at
			if section != "" {
				fmt.Fprintf(&b, "\n### %s\n", section)
			}
			b.WriteString("\n| key | default | meaning |\n|---|---|---|\n")
		}
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
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.key, initial, strings.ReplaceAll(help, "|", `\|`))
	}
	return strings.TrimLeft(b.String(), "\n")
}
