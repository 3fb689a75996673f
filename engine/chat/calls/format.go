package calls

import (
	"bytes"
	"slices"
	"strings"
)

// Shape is the way in which a format writes a call between its markers.
type Shape uint8

const (
	// JSONCalls: an object with name and arguments, several of them, or a list.
	JSONCalls Shape = iota + 1
	// Named: the name as text, perhaps an id, then the arguments as JSON.
	Named
	// Tagged: the name and each argument between tags, values without types.
	Tagged
	// Pythonic: a list of Python calls with keyword arguments.
	Pythonic
	// Braces: name{key:value}, keys bare, strings between two escape markers.
	Braces
	// Harmony: messages with a header that names channel and recipient.
	Harmony
)

// IDRule says which ids of calls the model's template accepts.
type IDRule uint8

const (
	AnyID    IDRule = iota // call_ and 24 letters and digits
	NineID                 // exactly 9 letters and digits
	KimiID                 // functions.NAME:INDEX, counted over the chat
	CountsID               // 0, 1, 2, counted over the chat
)

// Format describes how a family of models writes reasoning and tool calls.
// Parser, detection and grammar read the same row.
type Format struct {
	Name     string
	Families string // models that write it, for people
	Shape    Shape

	// Open begins a block of calls, Close ends it; each has its spellings.
	Open, Close []string
	// Tried openers begin a block only if all of it is calls of known tools.
	Tried []string
	// Bare formats have calls without any marker, at the beginning of the answer.
	Bare bool
	// Around are the Drops before and after all calls, as the model writes them.
	Around [2]string
	// Drop are markers around blocks and answers, which nobody is to see.
	Drop []string

	// ThinkOpen and ThinkClose enclose reasoning.
	ThinkOpen, ThinkClose string
	// ThinkCalls is set where models call without ending their reasoning.
	ThinkCalls bool

	// NameKeys, ArgsKeys and IDKeys are the keys of JSONCalls.
	NameKeys, ArgsKeys, IDKeys []string
	// IDLast is set where the id stands after the arguments: the call waits for it.
	IDLast bool
	IDs    IDRule
	// List is set where the calls of a block are a list, with one call too (JSONCalls).
	List bool
	// NameIsKey is set where an object's only key is the name, and its value the
	// arguments (JSONCalls).
	NameIsKey bool

	// Prefix stands before the name (Named, Braces), if the model writes it.
	Prefix string
	// NameEnd ends the name, IDMark begins an id, ArgsMark the arguments (Named).
	NameEnd          []string
	IDMark, ArgsMark string
	// Fence is set where the model puts arguments into a block of code (Named).
	Fence bool
	// IDFirst is set where IDMark ends the id, and the name follows it.
	IDFirst bool

	// The tags of Tagged. Where CallOpen is empty the name follows Open, and
	// where KeyEnd is followed by ValueOpen that begins the value.
	CallOpen, CallNameEnd, CallClose string
	KeyOpen, KeyEnd, ValueOpen       string
	ValueClose                       string
	// Newlines is set where one newline at each end of a value is the tags' own; of
	// JSONCalls, where the model writes one at each end of a block.
	Newlines bool
	// Grouped is set where one block has all calls (Tagged).
	Grouped bool
	// StringAttr and OtherAttr follow a key whose value is a string, and another.
	StringAttr, OtherAttr string

	// Escape stands before and after a string (Braces).
	Escape string

	// Tokens are parts of markers that are tokens of their own.
	Tokens []string
	// Hints are texts of prompts with tools by which the format is known, where
	// the template renders no calls.
	Hints []string

	noCalls bool // WithoutCalls
}

// WithoutCalls is f for answers that may not call: the text of a call is content.
func (f *Format) WithoutCalls() *Format {
	plain := *f
	plain.Open, plain.Close, plain.Tried, plain.Bare, plain.noCalls = nil, nil, nil, false, true
	return &plain
}

// WithoutDrops is f for answers in which no marker is left out.
func (f *Format) WithoutDrops() *Format {
	whole := *f
	whole.Drop = nil
	return &whole
}

// defaults of keys; a row with others lists them.
var (
	nameKeys = []string{"name"}
	argsKeys = []string{"arguments", "parameters"}
	idKeys   = []string{"id"}
)

// markers are the texts of f that can be tokens, in the order of their fields.
func (f *Format) markers() []string {
	var list []string
	add := func(texts ...string) {
		for _, t := range texts {
			if t != "" && !slices.Contains(list, t) {
				list = append(list, t)
			}
		}
	}
	add(f.Open...)
	add(f.Close...)
	add(f.Tried...)
	add(f.Drop...)
	add(f.ThinkOpen, f.ThinkClose, f.IDMark, f.ArgsMark, f.Escape)
	add(f.CallOpen, f.CallClose, f.KeyOpen, f.KeyEnd, f.ValueOpen, f.ValueClose)
	add(f.NameEnd...)
	add(f.Tokens...)
	if f.Shape == Harmony {
		add(harmonyMarkers...)
	}
	return list
}

// code is the first byte of a marker that came as a token. No UTF-8 text has it.
const code = 0xFF

// tokensMax is how many markers of a format can be tokens.
const tokensMax = 64

// Bound is a format whose markers are resolved for one vocabulary: a marker that
// is one token is only matched by its id, others by their text.
type Bound struct {
	*Format
	ids   map[int32]byte // token → second byte of its code
	texts []string       // by second byte − 0x80
	pats  patterns
}

// patterns are the bytes that markers have in a parser's buffer.
type patterns struct {
	open, closes, tried, drop    [][]byte
	thinkOpen, thinkClose        [][]byte
	prefix, nameEnd, idMark      [][]byte
	argsMark, escape             [][]byte
	callOpen, callName, callEnd  [][]byte
	keyOpen, keyEnd, valueOpen   [][]byte
	valueClose, nameStop, endAny [][]byte
	think, answer                [][]byte // all that end reasoning, and content
	thinkFirst, answerFirst      [256]bool
	harmony                      [][]byte
	harmonyFirst                 [256]bool
}

// Bind resolves the markers of f. token returns the id of a text that is one
// control or added token; nil resolves all by text.
func (f *Format) Bind(token func(text string) (id int32, ok bool)) *Bound {
	b := &Bound{Format: f, ids: map[int32]byte{}}
	if token != nil {
		for _, text := range f.markers() {
			if id, ok := token(text); ok && len(b.texts) < tokensMax {
				b.ids[id] = byte(0x80 + len(b.texts))
				b.texts = append(b.texts, text)
			}
		}
	}
	p := &b.pats
	p.open, p.closes, p.tried, p.drop = b.all(f.Open...), b.all(f.Close...), b.all(f.Tried...), b.all(f.Drop...)
	p.thinkOpen, p.thinkClose = b.all(f.ThinkOpen), b.all(f.ThinkClose)
	p.prefix, p.nameEnd, p.idMark = b.all(f.Prefix), b.all(f.NameEnd...), b.all(f.IDMark)
	p.argsMark, p.escape = b.all(f.ArgsMark), b.all(f.Escape)
	p.callOpen, p.callName, p.callEnd = b.all(f.CallOpen), b.all(f.CallNameEnd), b.all(f.CallClose)
	p.keyOpen, p.keyEnd, p.valueOpen = b.all(f.KeyOpen), b.all(f.KeyEnd), b.all(f.ValueOpen)
	p.valueClose = b.all(f.ValueClose)
	if f.Newlines && f.Shape == Tagged {
		p.valueClose = append(p.valueClose, append([]byte("\n"), p.valueClose[0]...))
	}
	p.nameStop = slices.Concat(p.keyOpen, p.callEnd, p.closes)
	p.endAny = slices.Concat(p.closes, p.callEnd, p.open, p.drop)
	p.think = slices.Clone(p.thinkClose)
	if f.ThinkCalls {
		p.think = slices.Concat(p.think, p.open, p.tried)
	}
	p.answer = slices.Concat(p.open, p.tried, p.drop, p.thinkOpen)
	// A token that closes what is not open is nothing to see.
	for _, closing := range slices.Concat(p.closes, p.thinkClose) {
		if closing[0] == code {
			p.answer = append(p.answer, closing)
		}
	}
	if f.Shape == Harmony {
		p.harmony = b.all(harmonyMarkers...)
	}
	first(&p.thinkFirst, p.think)
	first(&p.answerFirst, p.answer)
	first(&p.harmonyFirst, p.harmony)
	return b
}

func first(set *[256]bool, pats [][]byte) {
	for _, pat := range pats {
		set[pat[0]] = true
	}
}

// all returns the patterns of texts, of which empty ones are left out.
func (b *Bound) all(texts ...string) [][]byte {
	var list [][]byte
	for _, text := range texts {
		if text != "" {
			list = append(list, b.pattern(text))
		}
	}
	return list
}

// pattern is text with the markers in it that are tokens as codes.
func (b *Bound) pattern(text string) []byte {
	for i, marker := range b.texts {
		text = strings.ReplaceAll(text, marker, string([]byte{code, byte(0x80 + i)}))
	}
	return []byte(text)
}

// Marks reports whether a token is a marker.
func (b *Bound) Marks(id int32) bool {
	_, ok := b.ids[id]
	return ok
}

// Cut yields text in pieces: texts, and the markers in it that are tokens, by their ids.
func (b *Bound) Cut(text string, literal func(text string), token func(id int32)) {
	pattern := b.pattern(text)
	for len(pattern) > 0 {
		i := bytes.IndexByte(pattern, code)
		if i < 0 {
			literal(string(pattern))
			return
		}
		if i > 0 {
			literal(string(pattern[:i]))
		}
		for id, second := range b.ids {
			if second == pattern[i+1] {
				token(id)
			}
		}
		pattern = pattern[i+2:]
	}
}

// TakesTokens reports whether a marker is a token, so that the parser needs ids.
func (b *Bound) TakesTokens() bool { return len(b.ids) > 0 }

// literal appends text to dst with the codes in it as their markers' texts.
func (b *Bound) literal(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, code)
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		dst = append(dst, b.texts[text[i+1]-0x80]...)
		text = text[i+2:]
	}
}

// verdict is the result of a comparison with text that may go on.
type verdict uint8

const (
	no    verdict = iota
	maybe         // the text so far is the beginning of a pattern
	yes
)

// match compares the beginning of in with pats. The longest wins, so that where a
// longer one is still possible the answer is maybe, unless final.
func match(in []byte, pats [][]byte, final bool) (n int, v verdict) {
	for _, pat := range pats {
		switch {
		case len(pat) <= len(in):
			if len(pat) > n && bytes.Equal(in[:len(pat)], pat) {
				n = len(pat)
			}
		case !final && bytes.Equal(pat[:len(in)], in):
			v = maybe
		}
	}
	if v != maybe && n > 0 {
		v = yes
	}
	return n, v
}

// seek finds the first pattern in in. It returns where the pattern begins and
// its length, or where what may be the beginning of one begins, with length 0.
func seek(in []byte, pats [][]byte, firsts *[256]bool, final bool) (at, n int) {
	for i := range in {
		if !firsts[in[i]] {
			continue
		}
		if n, v := match(in[i:], pats, final); v == yes {
			return i, n
		} else if v == maybe {
			return i, 0
		}
	}
	return len(in), 0
}
