package upstream

import (
	"bytes"
	"encoding/json"
	"strings"
)

// This file takes JSON apart that was checked before: prompts of some hundred KiB pass
// here, and every token, so it is not checked again. What is no JSON all the same is
// answered by ok false, or taken for some member, and never by more than that.

// eachMember calls each for the members of an object, in their order, while it
// returns true. It tells whether raw is an object and each returned true for all.
func eachMember(raw json.RawMessage, each func(name string, value json.RawMessage) bool) bool {
	return eachNamed(raw, func(name, value []byte) bool { return each(string(name), value) })
}

// eachNamed is eachMember without a copy of the names, which are of use in each only.
func eachNamed(raw []byte, each func(name, value []byte) bool) bool {
	i := space(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return false
	}
	if i = space(raw, i+1); i < len(raw) && raw[i] == '}' {
		return true
	}
	for {
		end := textEnd(raw, i)
		if end < 0 {
			return false
		}
		name := raw[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			text, ok := unquoted(raw[i:end])
			if !ok {
				return false
			}
			name = []byte(text)
		}
		i = space(raw, end)
		if i == len(raw) || raw[i] != ':' {
			return false
		}
		i = space(raw, i+1)
		if end = valueEnd(raw, i); end <= i || !each(name, raw[i:end:end]) {
			return false
		}
		switch i = space(raw, end); {
		case i == len(raw):
			return false
		case raw[i] == '}':
			return true
		case raw[i] != ',':
			return false
		}
		i = space(raw, i+1)
	}
}

// space is the first index from i that holds no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// textEnd is the index after the text that begins at i, or -1 where none does.
func textEnd(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		begin := i
		i += n
		escapes := 0
		for i-escapes > begin && b[i-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// endsWord are the bytes after a number, true, false or null.
var endsWord = [256]bool{',': true, ':': true, ']': true, '}': true, ' ': true, '\n': true, '\t': true, '\r': true}

// valueEnd is the index after the value that begins at i, or -1 where it does not end.
func valueEnd(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = textEnd(b, i) - 1; i < 0 {
				return -1
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',', ':', ' ', '\n', '\t', '\r':
			continue
		default:
			for i+1 < len(b) && !endsWord[b[i+1]] {
				i++
			}
		}
		if depth == 0 {
			return i + 1
		}
		if depth < 0 {
			return -1
		}
	}
	return -1
}

// unquoted is the string that raw writes in JSON.
func unquoted(raw []byte) (text string, ok bool) {
	if len(raw) >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	err := json.Unmarshal(raw, &text)
	return text, err == nil && raw[0] == '"'
}

func appendMember(b []byte, name string, value []byte) []byte {
	if strings.Trim(name, nameCharacters) == "" {
		b = append(append(append(b, '"'), name...), '"')
	} else {
		b = append(b, quote(name)...)
	}
	return append(append(b, ':'), value...)
}

func quote(text string) json.RawMessage {
	b, _ := json.Marshal(text) // a string always can
	return b
}
