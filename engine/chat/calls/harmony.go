package calls

import "bytes"

var harmonyMarkers = []string{"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"}

// The places of markers in harmonyMarkers.
const (
	hmStart = iota
	hmChannel
	hmMessage
	hmConstrain
	hmEnd
	hmCall
	hmReturn
)

// readHarmony reads messages: a header with channel and recipient, then a body.
func (p *Parser) readHarmony(in []byte, final bool) (n int, stay bool) {
	if p.body == Args {
		return p.harmonyCall(in)
	}
	at, length := seek(in, p.f.pats.harmony, &p.f.pats.harmonyFirst, final)
	if at > 0 {
		p.harmonyText(in[:at])
		return at, false
	}
	if length == 0 {
		return 0, true
	}
	which := 0
	for i, pat := range p.f.pats.harmony {
		if bytes.Equal(pat, in[:length]) {
			which = i
		}
	}
	p.harmonyMarker(which)
	return length, false
}

// harmonyText reads text of a header or of a body.
func (p *Parser) harmonyText(text []byte) {
	if p.body != 0 {
		p.say(text)
		return
	}
	p.head = p.f.literal(p.head, text)
	// Without a marker only the recipient can begin a header.
	trimmed := bytes.TrimLeft(p.head, " \n")
	start := []byte("to=")
	likely := len(trimmed) < len(start) && bytes.HasPrefix(start, trimmed) || bytes.HasPrefix(trimmed, start)
	if len(p.head) > p.o.Limits.NameBytes || !p.opened && !likely {
		p.harmonyBroken()
	}
}

// harmonyBroken takes a header that is none for content.
func (p *Parser) harmonyBroken() {
	p.result.Fallbacks++
	p.flow.kind, p.body = Content, Content
	p.say(p.head)
	p.head = p.head[:0]
}

func (p *Parser) harmonyMarker(which int) {
	switch which {
	case hmStart:
		p.body, p.opened, p.head = 0, true, p.head[:0]
	case hmMessage:
		if p.body == 0 {
			p.harmonyBody()
		}
	case hmEnd, hmCall, hmReturn:
		p.body, p.opened, p.head = 0, false, p.head[:0]
	default:
		if p.body != 0 {
			// A new header without a start.
			p.body, p.head = 0, p.head[:0]
		}
		p.opened = true
		p.head = append(p.head, ' ')
		if which == hmChannel {
			p.head = append(p.head, "channel="...)
		}
	}
}

// harmonyBody begins the body that the header describes.
func (p *Parser) harmonyBody() {
	var channel, recipient []byte
	for _, word := range bytes.Fields(p.head) {
		if rest, ok := bytes.CutPrefix(word, []byte("channel=")); ok {
			channel = rest
		} else if rest, ok := bytes.CutPrefix(word, []byte("to=")); ok {
			recipient = rest
		}
	}
	p.head = p.head[:0]
	kind := Content
	if string(channel) == "analysis" {
		kind = Reasoning
	}
	if name := bytes.TrimPrefix(recipient, []byte("functions.")); len(recipient) > 0 && plainName(name) && !p.f.noCalls {
		p.block.kept, p.block.tried = false, false
		p.begin()
		p.block.call.name = string(name)
		if p.start() {
			p.block.value.reset(false)
			p.body = Args
			return
		}
		p.block.call.begun = false
		p.result.Fallbacks++
	}
	if p.flow.kind != kind {
		p.flow.turn(&p.main, kind)
	} else if p.flow.sent {
		// Two messages of one kind are two paragraphs.
		p.flow.held = append(p.flow.held[:0], "\n\n"...)
	}
	p.body = kind
}

// harmonyCall reads a call's arguments up to the message's end.
func (p *Parser) harmonyCall(in []byte) (n int, stay bool) {
	n, what := p.block.value.step(p, in)
	switch what {
	case wait:
		return n, true
	case on:
		return n, false
	case fail:
		// Not JSON: a tool that takes text. Up to the end of the message it
		// is the argument as it stands, or nothing.
		if in[n] != code && in[n] != '<' {
			p.result.Fallbacks++
		}
	}
	p.end()
	p.block.kept = false
	p.block.call.begun = false
	p.body, p.opened = 0, true
	return n, false
}

// harmonyFinish ends the answer inside a call, or in what is no header.
func (p *Parser) harmonyFinish() {
	p.result.Open = p.body == Args
	if p.body == 0 && !p.opened && len(p.head) > 0 {
		p.harmonyBroken()
	}
}
