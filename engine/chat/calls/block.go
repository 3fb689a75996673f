package calls

import "bytes"

// block is a place in an answer where calls are expected. Until a call is
// certain its text is kept in raw, to be sent as text if it is none.
type block struct {
	tried   bool // all of it must be calls of known tools
	kept    bool // raw and trial are in use
	marked  bool // it began with a marker
	any     bool // a call ended in it
	ended   bool // one did in this step, whose text is no longer raw
	raw     []byte
	trial   outbox
	machine machine
	call    call
	value   jsonValue
}

// call is the one that is being read.
type call struct {
	begun, started bool
	name, id       string
	held           []byte // arguments that wait for name and id
	argBytes       int
}

// progress is what a step of a machine came to.
type progress uint8

const (
	wait progress = iota // needs more text
	on                   // read something, or changed state
	done                 // the block is over
	fail                 // the rest is not of this format
)

// openBlock begins a block. Only a tried one can turn into text after its name.
func (p *Parser) openBlock(marker []byte, tried bool) {
	b := &p.block
	b.tried, b.marked, b.any, b.ended = tried, marker != nil, false, false
	b.raw = append(b.raw[:0], marker...)
	b.trial.reset()
	b.kept = true
	b.machine = p.newMachine(marker)
	b.call = call{held: b.call.held[:0]}
	p.mode = inCall
}

// readBlock lets the machine read in.
func (p *Parser) readBlock(in []byte) (n int, stay bool) {
	b := &p.block
	all := len(in)
	if b.kept {
		in = p.within(in)
	}
	n, what := b.machine.step(p, in)
	if b.kept && !b.ended {
		b.raw = append(b.raw, in[:n]...)
	}
	kept := len(b.raw)
	if b.ended = false; what == wait {
		kept += len(in) - n
	}
	switch {
	case what == done:
		p.closeBlock()
	case what == fail:
		p.breakBlock()
	case b.kept && kept >= p.o.Limits.HeldBytes && !p.commit():
		p.breakBlock()
	default:
		return n, what == wait && len(in) == all
	}
	return n, false
}

// within is the part of in that may still be kept. Markers stay whole.
func (p *Parser) within(in []byte) []byte {
	left := max(p.o.Limits.HeldBytes-len(p.block.raw), 1)
	if left >= len(in) {
		return in
	}
	if in[left-1] == code && (left < 2 || in[left-2] != code) {
		left++
	}
	return in[:left]
}

// commit makes the calls so far certain, and reports whether there are any.
func (p *Parser) commit() bool {
	b := &p.block
	if b.call.begun && !b.call.started && b.call.name != "" {
		p.start()
	}
	if !b.any && !b.call.started {
		return false
	}
	p.certain()
	b.tried = false
	return true
}

func (p *Parser) certain() {
	b := &p.block
	if !b.kept {
		return
	}
	b.kept, b.raw = false, b.raw[:0]
	for _, e := range b.trial.events {
		p.count(e.Kind)
	}
	p.main.move(&b.trial)
}

func (p *Parser) count(k Kind) {
	switch k {
	case CallStart:
		p.result.Calls++
		p.other = true
	case CallEnd:
		p.result.Ended++
	}
}

// send adds an event of the current call.
func (p *Parser) send(e Event) {
	e.Index = p.index()
	if e.Kind == CallEnd {
		e.Index--
	}
	if p.block.kept {
		p.block.trial.add(e)
		return
	}
	p.count(e.Kind)
	p.main.add(e)
}

// index is the number of the next call.
func (p *Parser) index() int {
	n := p.result.Calls
	if p.block.kept {
		for _, e := range p.block.trial.events {
			if e.Kind == CallStart {
				n++
			}
		}
	}
	return n
}

// closeBlock ends a block at its end.
func (p *Parser) closeBlock() {
	b := &p.block
	if b.call.begun {
		p.end()
	}
	if b.kept && !b.any {
		p.breakBlock()
		return
	}
	p.certain()
	p.leave()
}

// breakBlock ends a block whose text is not of the format: what is not certain
// goes on as text.
func (p *Parser) breakBlock() {
	b := &p.block
	p.result.Fallbacks++
	if b.call.started && !b.kept {
		p.end()
	}
	p.leave()
	if b.kept {
		b.kept = false
		b.trial.reset()
		p.say(b.raw)
	}
}

func (p *Parser) leave() {
	p.block.call.begun, p.block.call.started = false, false
	p.mode = inText
}

// finishBlock ends the answer inside a block.
func (p *Parser) finishBlock(cut bool) {
	b := &p.block
	whole := !b.call.begun && b.any && b.machine.whole()
	if whole {
		// What is left can only be the beginning of a closing marker.
		p.closeBlock()
		return
	}
	if b.kept {
		b.raw = append(b.raw, p.buf...)
	}
	if b.call.begun && b.call.name != "" && (cut || !b.tried) {
		if !b.call.started && !p.start() {
			p.breakBlock()
			return
		}
		p.certain()
		p.result.Open = true
		return
	}
	if cut && (b.marked || b.any) {
		// The rest is the beginning of a call without a name.
		p.certain()
		p.result.Fallbacks++
		p.result.Open = true
		return
	}
	if b.any && !b.tried {
		p.certain()
		p.result.Fallbacks++
		return
	}
	p.breakBlock()
}

// begin begins a call whose name is not yet known.
func (p *Parser) begin() {
	b := &p.block
	b.call = call{begun: true, held: b.call.held[:0]}
}

// start sends the call's beginning. It is false if no such call can be.
func (p *Parser) start() bool {
	b := &p.block
	c := &b.call
	if c.name == "" || p.index() >= p.o.Limits.Calls || b.tried && p.tools[c.name] == nil {
		return false
	}
	if !b.tried {
		p.certain()
	}
	index := p.index()
	p.send(Event{Kind: CallStart, ID: p.newID(c.id, c.name, index), Name: c.name})
	c.started = true
	if len(c.held) > 0 {
		p.args(c.held)
		c.held = c.held[:0]
	}
	return true
}

// args sends a piece of the call's arguments, or holds it until it has a name.
func (p *Parser) args(text []byte) {
	c := &p.block.call
	if !c.started {
		c.held = append(c.held, text...)
		return
	}
	c.argBytes += len(text)
	to := &p.main
	if p.block.kept {
		to = &p.block.trial
	}
	to.text(Args, p.index()-1, text)
}

func (p *Parser) argsString(text string) {
	p.text = append(p.text[:0], text...)
	p.args(p.text)
}

// end ends the call. It is false if no such call can be.
func (p *Parser) end() bool {
	b := &p.block
	c := &b.call
	if !c.started && !p.start() {
		return false
	}
	if c.argBytes == 0 {
		p.argsString("{}")
	}
	p.send(Event{Kind: CallEnd})
	b.call = call{held: c.held[:0]}
	b.any = true
	if !b.tried {
		// The next call has to prove itself again.
		b.kept, b.ended, b.raw = true, true, b.raw[:0]
		b.trial.reset()
	}
	return true
}

// machine reads the calls of a block.
type machine interface {
	// step reads the beginning of in, after which more may come: its result
	// must not depend on where in ends.
	step(p *Parser, in []byte) (n int, what progress)
	// whole reports whether the block may end here.
	whole() bool
}

func (p *Parser) newMachine(marker []byte) machine {
	f := p.f
	switch f.Shape {
	case Named:
		return &namedMachine{}
	case Tagged:
		m := &taggedMachine{}
		if has(f.pats.callOpen, marker) {
			m.state = tagName
		}
		return m
	case Pythonic, Braces:
		return &literalMachine{}
	}
	m := &jsonMachine{}
	if bytes.HasSuffix(marker, []byte("[")) {
		m.list, m.state = true, jsonItem
	}
	return m
}

// spaces counts white space at the beginning of in.
func spaces(in []byte) int {
	n := 0
	for n < len(in) && isSpace(in[n]) {
		n++
	}
	return n
}

// plainName reports whether text can be the name of a tool that stands without
// quotes.
func plainName(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	return bytes.IndexFunc(text, func(r rune) bool {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == 0xFFFD:
			return r == 0xFFFD
		case r == '_', r == '-', r == '.', r == ':', r == '/', r == '$', r > 0x7F:
			return false
		}
		return true
	}) < 0
}
