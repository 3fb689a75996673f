package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// vocabEntry is a member of the model's vocab.
type vocabEntry struct {
	text string
	id   int32
}

// readTables reads the vocab and the merges, the largest part of a tokenizer.json.
// It returns the rest for encoding/json, which is many times slower. As in
// encoding/json, a second vocab adds to the first, and the last merges win.
func (m *jsonModel) readTables(text string) (rest []byte, err error) {
	s, done := &jsonScanner{text: text}, 0
	take := func(read func() error) error {
		s.next()
		rest = append(append(rest, text[done:s.at]...), "null"...)
		err := read()
		done = s.at
		return err
	}
	err = s.object(func(key string) error {
		if key != "model" || s.next() != '{' {
			return s.skip()
		}
		return s.object(func(key string) error {
			switch {
			case key == "vocab" && s.next() != 'n': // null
				return take(func() error { return m.readVocab(s) })
			case key == "merges" && s.next() != 'n':
				return take(func() error { return m.readMerges(s) })
			}
			return s.skip()
		})
	})
	return append(rest, text[done:]...), err
}

// readVocab copies the texts, so that they do not keep the file in memory.
func (m *jsonModel) readVocab(s *jsonScanner) error {
	if s.next() == '[' {
		return m.readScores(s)
	}
	var list []vocabEntry
	var all strings.Builder
	err := s.object(func(text string) error {
		from := s.at
		for s.next() == '-' || s.next() >= '0' && s.next() <= '9' {
			s.at++
		}
		digits := strings.TrimSpace(s.text[from:s.at])
		id, err := strconv.ParseInt(digits, 10, 32)
		if digits := strings.TrimLeft(digits, "-"); err != nil || len(digits) > 1 && digits[0] == '0' {
			return fmt.Errorf("vocab: token %.60q has no whole number of 32 bits as id", text)
		}
		list = append(list, vocabEntry{text, int32(id)})
		all.WriteString(text)
		return nil
	})
	texts := all.String()
	for i := range list {
		n := len(list[i].text)
		list[i].text, texts = texts[:n], texts[n:]
	}
	m.Vocab = append(m.Vocab, list...)
	return err
}

// readScores reads a unigram model's vocab: a list of pairs of a text and its score.
func (m *jsonModel) readScores(s *jsonScanner) error {
	from := s.at
	if err := s.skip(); err != nil {
		return err
	}
	var pairs []json.RawMessage
	if err := json.Unmarshal([]byte(s.text[from:s.at]), &pairs); err != nil {
		return fmt.Errorf("vocab: is no list: %w", err)
	}
	m.Vocab, m.Scores = make([]vocabEntry, len(pairs)), make([]float32, len(pairs))
	for i, pair := range pairs {
		var members []json.RawMessage
		if err := json.Unmarshal(pair, &members); err != nil || len(members) != 2 ||
			json.Unmarshal(members[0], &m.Vocab[i].text) != nil || json.Unmarshal(members[1], &m.Scores[i]) != nil {
			return fmt.Errorf("vocab: member %d is %.60s; needed is a text and its score", i, pair)
		}
		m.Vocab[i].id = int32(i)
	}
	return nil
}

func (m *jsonModel) readMerges(s *jsonScanner) error {
	m.Merges = make([]mergeParts, 0, 2*len(m.Vocab))
	var parts mergeParts
	var n int
	return s.array(func() (err error) {
		if n = 0; s.next() == '[' {
			err = s.array(func() error {
				part, err := s.string()
				if n < len(parts) {
					parts[n] = part
				}
				n++
				return err
			})
			if err == nil && n != len(parts) {
				err = fmt.Errorf("a merge of %d parts", n)
			}
		} else {
			var text string
			if text, err = s.string(); err == nil {
				parts, err = cutMerge(text)
			}
		}
		m.Merges = append(m.Merges, parts)
		return err
	})
}

// jsonScanner scans JSON. It does not check the values that it skips.
type jsonScanner struct {
	text string
	at   int
}

var errJSONEnd = errors.New("the file ends too early")

// next skips white space and returns the next byte, 0 at the end.
func (s *jsonScanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		if c := s.text[s.at]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

func (s *jsonScanner) expect(c byte) error {
	if got := s.next(); got == 0 {
		return errJSONEnd
	} else if got != c {
		return fmt.Errorf("at byte %d is %q where %q should be", s.at, got, c)
	}
	s.at++
	return nil
}

// list reads elements separated by commas between two brackets.
func (s *jsonScanner) list(from, to byte, each func() error) error {
	if err := s.expect(from); err != nil {
		return err
	}
	if s.next() == to {
		s.at++
		return nil
	}
	for {
		if err := each(); err != nil {
			return err
		}
		if s.next() != ',' {
			return s.expect(to)
		}
		s.at++
	}
}

func (s *jsonScanner) array(each func() error) error { return s.list('[', ']', each) }

// object calls each at every member's value.
func (s *jsonScanner) object(each func(key string) error) error {
	return s.list('{', '}', func() error {
		key, err := s.string()
		if err == nil {
			err = s.expect(':')
		}
		if err != nil {
			return err
		}
		return each(key)
	})
}

// string reads a string. Without escapes the result is a part of the text.
func (s *jsonScanner) string() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	from, plain := s.at, true
	for ; s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		if c := s.text[s.at]; c == '\\' {
			s.at, plain = s.at+1, false
		} else if c < ' ' {
			plain = false
		}
	}
	if s.at >= len(s.text) {
		s.at = len(s.text) // a backslash at the end would go beyond it
		return "", errJSONEnd
	}
	text := s.text[from:s.at]
	s.at++
	if !plain || !utf8.ValidString(text) {
		return unescape(s.text[from-1 : s.at])
	}
	return text, nil
}

func unescape(quoted string) (text string, err error) {
	err = json.Unmarshal([]byte(quoted), &text)
	return text, err
}

// skip skips a value.
func (s *jsonScanner) skip() error {
	for depth := 0; ; {
		switch s.next() {
		case 0:
			return errJSONEnd
		case '"':
			if _, err := s.string(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			depth--
			s.at++
		default: // a number or word, or between values
			s.at++
		}
		if c := s.next(); depth < 0 || depth == 0 && (c == ',' || c == '}' || c == ']' || c == 0) {
			return nil
		}
	}
}
