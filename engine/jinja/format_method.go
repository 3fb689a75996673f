package jinja

import (
	"strconv"
	"strings"
)

// formatMethod is str.format: fields {}, {0} and {name}, with attributes, items,
// conversions and specifications.
func formatMethod(s *state, text string, a args) any {
	f := formatter{s: s, args: a}
	out := f.run(text, 2)
	s.charge(len(out))
	return out
}

type formatter struct {
	s    *state
	args args
	next int // number of the next {}, or -1 after a numbered one
}

// run fills the fields of text. Fields in a specification are one level deeper.
func (f *formatter) run(text string, levels int) string {
	if levels == 0 && text != "" {
		f.s.fail("Max string recursion exceeded")
	}
	var b strings.Builder
	for text != "" {
		at := strings.IndexAny(text, "{}")
		if at < 0 {
			b.WriteString(text)
			break
		}
		b.WriteString(text[:at])
		text = text[at:]
		if levels == 2 && len(text) > 1 && text[1] == text[0] {
			b.WriteByte(text[0])
			text = text[2:]
			continue
		}
		end := closing(text)
		if text[0] == '}' || end < 0 {
			f.s.fail("Single '%c' encountered in format string", text[0])
		}
		f.s.charge(b.Len() >> 8)
		b.WriteString(f.field(text[1:end], levels))
		text = text[end+1:]
	}
	return b.String()
}

// closing returns the index of the } that closes the { at the start, or -1.
func closing(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field prints one field: name[!conversion][:specification].
func (f *formatter) field(text string, levels int) string {
	end := strings.IndexAny(text, "!:")
	if open := strings.IndexByte(text, '['); open >= 0 && open < end {
		if close := strings.IndexByte(text[open:], ']'); close >= 0 {
			if end = strings.IndexAny(text[open+close:], "!:"); end >= 0 {
				end += open + close
			}
		}
	}
	if end < 0 {
		end = len(text)
	}
	v := f.value(text[:end])
	rest := text[end:]
	if strings.HasPrefix(rest, "!") {
		if len(rest) < 2 || strings.IndexByte("rsa", rest[1]) < 0 || len(rest) > 2 && rest[2] != ':' {
			f.s.fail("bad conversion in format string")
		}
		if rest[1] == 's' {
			v = f.s.printed(v)
		} else {
			v = f.s.shown(v, rest[1] == 'a')
		}
		rest = rest[2:]
	}
	return f.s.formatValue(v, f.run(strings.TrimPrefix(rest, ":"), levels-1))
}

// value returns the value of a field's name: an argument with its attributes and
// items.
func (f *formatter) value(name string) any {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	v := f.argument(name[:end])
	for rest := name[end:]; rest != ""; {
		f.s.step()
		if rest[0] == '[' {
			key, after, closed := strings.Cut(rest[1:], "]")
			if !closed || key == "" {
				f.s.fail("bad item in format string")
			}
			if i, err := strconv.ParseInt(key, 10, 64); err == nil {
				v = f.s.item(v, i)
			} else {
				v = f.s.item(v, key)
			}
			rest = after
			continue
		}
		end := strings.IndexAny(rest[1:], ".[") + 1
		if end <= 0 {
			end = len(rest)
		}
		v, rest = f.s.attr(v, rest[1:end]), rest[end:]
	}
	return v
}

func (f *formatter) argument(name string) any {
	i, err := strconv.Atoi(name)
	if (name == "" && f.next < 0) || (err == nil && f.next > 0) {
		f.s.fail("cannot switch between automatic and manual field numbering")
	}
	if name == "" {
		i, err = f.next, nil
		f.next++
	} else if err == nil {
		f.next = -1
	}
	if err == nil {
		if i < 0 || i >= len(f.args.pos) {
			f.s.fail("Replacement index %d out of range for positional args tuple", i)
		}
		return f.args.pos[i]
	}
	v, ok := f.args.name(name)
	if !ok {
		f.s.fail("KeyError: '%s'", name)
	}
	return v
}
