package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/grammar"
)

// A value of JSON has no order of keys, and a grammar writes them in one: reorder finds the
// order that a grammar takes.

// orderSteps bounds the bytes that one search tries.
const orderSteps = 2_000_000

// part is a value with its spelling. An object has a key for each of its parts.
type part struct {
	text  string
	kind  json.Delim // '[', '{' or 0
	keys  []string   // with their quotes and the colon
	parts []*part
}

// search is for one instance.
type search struct {
	auto *grammar.Automaton
	left int
	text []byte
	err  error
}

// reorder gives the text of an instance with the keys of its objects in an order that the
// grammar of the schema takes, and false where it finds none.
func reorder(auto *grammar.Automaton, text, schema string) (string, bool, error) {
	v, err := readText(text)
	if err != nil {
		return "", false, err
	}
	of, err := readText(schema)
	if err != nil {
		return "", false, err
	}
	v.sort(of.properties(nil))
	start, err := auto.Start()
	if err != nil {
		return "", false, err
	}
	s := &search{auto: auto, left: orderSteps}
	ok := s.value(start, v, auto.Accepting)
	return string(s.text), ok, s.err
}

func readText(text string) (*part, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return readPart(d, text)
}

// properties adds the places of the keys in each object that lists properties.
func (p *part) properties(lists []map[string]int) []map[string]int {
	for i, one := range p.parts {
		if p.keys != nil && p.keys[i] == `"properties":` {
			places := map[string]int{}
			for j, key := range one.keys {
				places[key] = j
			}
			lists = append(lists, places)
		}
		lists = one.properties(lists)
	}
	return lists
}

// sort puts the keys of each object in the order of the properties that have most of them:
// what is tried first.
func (p *part) sort(lists []map[string]int) {
	var best map[string]int
	most := 0
	for _, list := range lists {
		n := 0
		for _, key := range p.keys {
			if _, listed := list[key]; listed {
				n++
			}
		}
		if n > most {
			best, most = list, n
		}
	}
	place := func(i int) int {
		if at, listed := best[p.keys[i]]; listed {
			return at
		}
		return len(best)
	}
	if most > 0 {
		order := make([]int, len(p.keys))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(place(a), place(b)) })
		keys, parts := make([]string, len(order)), make([]*part, len(order))
		for i, from := range order {
			keys[i], parts[i] = p.keys[from], p.parts[from]
		}
		p.keys, p.parts = keys, parts
	}
	for _, one := range p.parts {
		one.sort(lists)
	}
}

func readPart(d *json.Decoder, text string) (*part, error) {
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("reading an instance: %w", err)
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return &part{text: spelled(d, text)}, nil
	}
	p := &part{kind: delim}
	for d.More() {
		if delim == '{' {
			if _, err := d.Token(); err != nil {
				return nil, fmt.Errorf("reading a key: %w", err)
			}
			p.keys = append(p.keys, spelled(d, text)+":")
		}
		one, err := readPart(d, text)
		if err != nil {
			return nil, err
		}
		p.parts = append(p.parts, one)
	}
	_, err = d.Token()
	return p, err
}

// spelled is the scalar or key that was read last, as it stands in the text.
func spelled(d *json.Decoder, text string) string {
	end := int(d.InputOffset())
	at := end - 1
	if text[at] != '"' {
		for at > 0 && !bytes.ContainsRune([]byte("[{,: \t\r\n"), rune(text[at-1])) {
			at--
		}
		return text[at:end]
	}
	for at--; text[at] != '"' || escaped(text[:at]); at-- {
	}
	return text[at:end]
}

// escaped says whether the character after before has a backslash that counts.
func escaped(before string) bool {
	n := 0
	for n < len(before) && before[len(before)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// write follows a text, and keeps it.
func (s *search) write(from grammar.State, text string) grammar.State {
	for i := 0; i < len(text) && from != grammar.Dead && s.err == nil; i++ {
		if s.left--; s.left < 0 {
			return grammar.Dead
		}
		from, s.err = s.auto.Next(from, text[i])
	}
	if s.err != nil {
		return grammar.Dead
	}
	s.text = append(s.text, text...)
	return from
}

// value writes a value in an order after which then holds.
func (s *search) value(from grammar.State, v *part, then func(grammar.State) bool) bool {
	length := len(s.text)
	ok := false
	switch v.kind {
	case '{':
		tried := map[tried]bool{}
		ok = s.members(s.write(from, "{"), v, make([]byte, len(v.parts)), 0, tried, then)
	case '[':
		ok = s.items(s.write(from, "["), v.parts, then)
	default:
		next := s.write(from, v.text)
		ok = next != grammar.Dead && then(next)
	}
	if !ok {
		s.text = s.text[:length]
	}
	return ok
}

func (s *search) items(from grammar.State, rest []*part, then func(grammar.State) bool) bool {
	if from == grammar.Dead {
		return false
	}
	if len(rest) == 0 {
		end := s.write(from, "]")
		return end != grammar.Dead && then(end)
	}
	return s.value(from, rest[0], func(next grammar.State) bool {
		if len(rest) > 1 {
			next = s.write(next, ",")
		}
		return s.items(next, rest[1:], then)
	})
}

// tried is a place in an object from which no order leads on.
type tried struct {
	state grammar.State
	taken string
}

// members writes those that are not taken: first keys after which every other may still come.
func (s *search) members(from grammar.State, v *part, taken []byte, count int, failed map[tried]bool, then func(grammar.State) bool) bool {
	here := tried{from, string(taken)}
	if from == grammar.Dead || failed[here] {
		return false
	}
	if count == len(v.parts) {
		end := s.write(from, "}")
		return end != grammar.Dead && then(end)
	}
	comma, length := "", len(s.text)
	if count > 0 {
		comma = ","
	}
	for _, careful := range [...]bool{true, false} {
		for i := range v.parts {
			if taken[i] == 1 {
				continue
			}
			taken[i] = 1
			if next := s.write(from, comma+v.keys[i]); next != grammar.Dead && s.value(next, v.parts[i], func(next grammar.State) bool {
				return (!careful || s.allMayCome(next, v, taken)) && s.members(next, v, taken, count+1, failed, then)
			}) {
				return true
			}
			taken[i] = 0
			s.text = s.text[:length]
		}
	}
	failed[here] = true
	return false
}

// allMayCome says whether each key that is not taken may come next.
func (s *search) allMayCome(from grammar.State, v *part, taken []byte) bool {
	length := len(s.text)
	defer func() { s.text = s.text[:length] }()
	for i := range v.parts {
		if taken[i] == 0 && s.write(from, ","+v.keys[i]) == grammar.Dead {
			return false
		}
	}
	return true
}
