package calls

import "bytes"

// Kind is the kind of an Event.
type Kind uint8

const (
	Reasoning Kind = iota + 1
	Content
	CallStart // Index, ID and Name are set
	Args      // a piece of the arguments of call Index
	CallEnd
)

// Event is one part of an answer. Text is valid until the parser's next call.
type Event struct {
	Kind     Kind
	Index    int
	ID, Name string
	Text     []byte

	from, to int // Text in the outbox
}

// CallsMax is how many calls an answer may have where nothing else is said.
const CallsMax = 128

// Limits bound a parser's memory. A zero means the default.
type Limits struct {
	// HeldBytes is how much text may wait until it is proven to be a call, and
	// how long an argument may be that is only sent whole.
	HeldBytes int
	// NameBytes bounds names, keys and ids.
	NameBytes int
	// Depth bounds the nesting of arguments.
	Depth int
	// Calls bounds the calls of one answer; more is text.
	Calls int
}

func (l Limits) filled() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.HeldBytes, 1<<20)
	set(&l.NameBytes, 256)
	set(&l.Depth, 256)
	set(&l.Calls, CallsMax)
	return l
}

// Options describe one answer.
type Options struct {
	Tools []Tool
	// InReasoning is set if the prompt ended inside open reasoning.
	InReasoning bool
	// Certain is set if a grammar holds the answer: what begins as a call is one,
	// and calls without a marker need not wait for their end.
	Certain bool
	// Seed makes the ids of this answer's calls, which are the same for one seed.
	Seed string
	// FirstCall counts the calls of earlier turns, for formats that go on counting.
	FirstCall int
	Limits    Limits
}

// Result is how an answer ended.
type Result struct {
	Calls int  // calls that began
	Ended int  // calls that ended
	Open  bool // the text ended inside a call
	// Fallbacks counts text that began as a call and was not one, and calls whose
	// text broke the format. None of them is an error.
	Fallbacks int
}

type mode uint8

const (
	inText mode = iota
	inCall
	inHarmony
)

// Parser reads one answer. It is not safe for use by several goroutines.
type Parser struct {
	f     *Bound
	o     Options
	tools map[string]*toolTypes

	buf    []byte // read and not yet decided
	main   outbox // what the caller gets
	mode   mode
	flow   flow // reasoning or content
	other  bool // content was sent, or a call
	block  block
	result Result
	ids    map[string]bool
	text   []byte // scratch

	head   []byte // Harmony: the header so far
	body   Kind   // Harmony: what the message is, 0 in a header
	opened bool   // Harmony: a header began with a marker
}

// NewParser returns a parser for one answer in format b.
func NewParser(b *Bound, o Options) *Parser {
	o.Limits = o.Limits.filled()
	p := &Parser{f: b, o: o, tools: toolTable(o.Tools), flow: flow{kind: Content}, ids: map[string]bool{}}
	if o.InReasoning {
		p.flow.kind = Reasoning
	}
	if b.Shape == Harmony {
		p.mode = inHarmony
	}
	return p
}

// Feed reads the next piece of the answer and returns what it decides. id is the
// token, or negative if the piece is not one token; text is the token's text.
func (p *Parser) Feed(id int32, text []byte) []Event {
	p.main.reset()
	if second, ok := p.f.ids[id]; ok && id >= 0 {
		p.buf = append(p.buf, code, second)
	} else {
		for len(text) > 0 {
			i := bytes.IndexByte(text, code)
			if i < 0 {
				p.buf = append(p.buf, text...)
				break
			}
			p.buf = append(append(p.buf, text[:i]...), "\uFFFD"...)
			text = text[i+1:]
		}
	}
	p.run(false)
	return p.main.take()
}

// Finish ends the answer. cut says that the text ended by a limit, not by the
// model's own end; then a call that began stays unfinished.
func (p *Parser) Finish(cut bool) ([]Event, Result) {
	p.main.reset()
	p.run(true)
	if p.mode == inCall {
		p.finishBlock(cut)
	}
	if p.mode == inHarmony {
		p.harmonyFinish()
	}
	p.buf = p.buf[:0]
	p.flow.finish(&p.main, p.result.Calls == 0)
	return p.main.take(), p.result
}

// Thinking reports whether what was read so far ends inside reasoning.
func (p *Parser) Thinking() bool {
	switch p.mode {
	case inHarmony:
		return p.body == Reasoning
	case inText:
		return p.flow.kind == Reasoning
	}
	return false
}

// Held is how many bytes were read and may still become text or nothing.
func (p *Parser) Held() int {
	n := len(p.buf) + len(p.flow.held) + len(p.head)
	if p.mode == inCall && p.block.kept {
		n += len(p.block.raw)
	}
	return n
}

// run reads the buffer as far as it can be decided.
func (p *Parser) run(final bool) {
	at := 0
	for at < len(p.buf) {
		in := p.buf[at:]
		n, stay := 0, false
		switch p.mode {
		case inText:
			n, stay = p.readText(in, final)
		case inHarmony:
			n, stay = p.readHarmony(in, final)
		case inCall:
			n, stay = p.readBlock(in)
		}
		at += n
		if stay {
			break
		}
	}
	p.buf = p.buf[:copy(p.buf, p.buf[at:])]
}

// readText reads reasoning or content up to a marker. stay says that the rest
// must wait for more.
func (p *Parser) readText(in []byte, final bool) (n int, stay bool) {
	pats := &p.f.pats
	thinking := p.flow.kind == Reasoning
	if !thinking && p.f.Bare && p.fresh() {
		if n, done := p.readBare(in); done {
			return n, false
		}
	}
	list, firsts := pats.answer, &pats.answerFirst
	if thinking {
		list, firsts = pats.think, &pats.thinkFirst
	}
	at, length := seek(in, list, firsts, final)
	if at > 0 {
		p.say(in[:at])
		return at, false
	}
	if length == 0 {
		return 0, true
	}
	p.readMarker(in[:length], thinking)
	return length, false
}

// fresh reports whether nothing but white space and reasoning has come.
func (p *Parser) fresh() bool { return !p.other && !p.flow.sent }

// readBare begins a block without a marker where the answer begins like one.
func (p *Parser) readBare(in []byte) (n int, done bool) {
	if n = spaces(in); n > 0 {
		p.say(in[:n])
		return n, true
	}
	if in[0] != '[' && (in[0] != '{' || p.f.Shape != JSONCalls) {
		return 0, false
	}
	p.openBlock(nil, !p.o.Certain)
	return 0, true
}

// readMarker acts on a marker in text.
func (p *Parser) readMarker(marker []byte, thinking bool) {
	pats := &p.f.pats
	token := marker[0] == code
	switch {
	case thinking && has(pats.thinkClose, marker):
		p.flow.turn(&p.main, Content)
	case has(pats.open, marker):
		p.openBlock(marker, thinking)
	case has(pats.tried, marker):
		p.openBlock(marker, !p.o.Certain)
	case has(pats.thinkOpen, marker):
		if !token && !p.fresh() {
			p.say(marker)
			return
		}
		p.flow.turn(&p.main, Reasoning)
	}
}

func has(pats [][]byte, marker []byte) bool {
	for _, pat := range pats {
		if bytes.Equal(pat, marker) {
			return true
		}
	}
	return false
}

// say sends text as reasoning or content.
func (p *Parser) say(text []byte) {
	if bytes.IndexByte(text, code) >= 0 {
		p.text = p.f.literal(p.text[:0], text)
		text = p.text
	}
	p.flow.write(&p.main, text)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
