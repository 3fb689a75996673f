package calls

// flow sends reasoning or content without white space at its ends: white space
// waits for what follows it.
type flow struct {
	kind Kind
	sent bool // of this kind
	held []byte
	skip bool // white space before the first text is the format's own
}

// heldSpaceMax bounds the white space that waits; more is sent.
const heldSpaceMax = 4096

func (f *flow) write(to *outbox, text []byte) {
	if !f.sent && (f.skip || f.kind == Reasoning) {
		text = spacesTrimmed(text)
	}
	end := len(text)
	for end > 0 && isSpace(text[end-1]) {
		end--
	}
	if end > 0 {
		to.text(f.kind, 0, f.held)
		to.text(f.kind, 0, text[:end])
		f.held, f.sent = f.held[:0], true
	}
	f.held = append(f.held, text[end:]...)
	for len(f.held) > heldSpaceMax {
		to.text(f.kind, 0, f.held[:heldSpaceMax])
		f.held, f.sent = f.held[:copy(f.held, f.held[heldSpaceMax:])], true
	}
}

// turn ends the text of one kind and begins another.
func (f *flow) turn(to *outbox, kind Kind) {
	f.kind, f.sent, f.skip, f.held = kind, false, true, f.held[:0]
}

// finish sends the white space at the end of content, if it is the model's own
// answer and not the space before a call.
func (f *flow) finish(to *outbox, plain bool) {
	if f.kind == Content && f.sent && plain {
		to.text(Content, 0, f.held)
	}
	f.held = f.held[:0]
}

// outbox collects events, with their text in one buffer.
type outbox struct {
	events []Event
	bytes  []byte
}

func (o *outbox) reset() { o.events, o.bytes = o.events[:0], o.bytes[:0] }

// text adds text to the last event if that is of the same kind and call.
func (o *outbox) text(kind Kind, index int, text []byte) {
	if len(text) == 0 {
		return
	}
	o.bytes = append(o.bytes, text...)
	if last := len(o.events) - 1; last >= 0 && o.events[last].Kind == kind && o.events[last].Index == index {
		o.events[last].to = len(o.bytes)
		return
	}
	o.events = append(o.events, Event{Kind: kind, Index: index, from: len(o.bytes) - len(text), to: len(o.bytes)})
}

func (o *outbox) add(e Event) { o.events = append(o.events, e) }

// take returns the events, valid until the next reset.
func (o *outbox) take() []Event {
	for i := range o.events {
		if e := &o.events[i]; e.to > e.from {
			e.Text = o.bytes[e.from:e.to]
		}
	}
	return o.events
}

// move appends the events of from and empties it.
func (o *outbox) move(from *outbox) {
	for _, e := range from.events {
		if e.to > e.from {
			o.text(e.Kind, e.Index, from.bytes[e.from:e.to])
		} else {
			o.add(e)
		}
	}
	from.reset()
}
