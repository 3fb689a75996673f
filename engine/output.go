package engine

import (
	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/text"
	"github.com/forebay-io/forebay/internal/wire"
)

// output turns the tokens of a choice into what its reader gets: whole characters,
// cut before a stop text, and where it is split, reasoning and calls apart. Stop
// texts are matched in content alone, and not across a call.
type output struct {
	text   *text.Stream // content
	parser *calls.Parser
	// The rest is only used with a parser.
	other    *text.Stream // reasoning, or the arguments of a call
	kind     calls.Kind   // of the last event
	content  int          // bytes given to text
	callsMax int
	// Reasoning of thinkMax tokens, if that is not 0, ends with the tokens of closing.
	thinkMax  int
	closing   []int32
	ended     int // calls
	reasoning int // tokens
	over      bool
}

// newOutput makes the output of one choice. parser may be nil.
func newOutput(stops []string, parser *calls.Parser, callsMax int) output {
	o := output{text: text.NewStream(stops), parser: parser, callsMax: callsMax}
	if parser != nil {
		o.kind, o.other = calls.Content, text.NewStream(nil)
	}
	return o
}

// push adds a token with its bytes to e. It reports whether the answer is over.
func (o *output) push(e *wire.Event, id int32, piece []byte) (over bool) {
	if o.parser == nil {
		o.content += len(piece)
		e.Text, o.over = o.text.Push(piece)
		return o.over
	}
	thinking := o.parser.Thinking()
	o.take(e, o.parser.Feed(id, piece))
	if thinking || o.parser.Thinking() {
		o.reasoning++
	}
	return o.over
}

// choose returns the next token, where the sampler chose id: reasoning that has used its
// budget is closed.
func (o *output) choose(id int32) int32 {
	if o.thinkMax == 0 || len(o.closing) == 0 || o.reasoning < o.thinkMax || !o.parser.Thinking() {
		return id
	}
	id, o.closing = o.closing[0], o.closing[1:]
	return id
}

// finish adds what was held back; cut says that the model did not end by itself.
// fallbacks counts what began as a call and did not go on as one.
func (o *output) finish(e *wire.Event, cut bool) (fallbacks int) {
	if o.parser != nil {
		events, result := o.parser.Finish(cut)
		if o.over { // what follows is cut off, and no fault of the text
			return 0
		}
		o.take(e, events)
		o.turn(e, 0)
		return result.Fallbacks
	}
	if !o.over {
		e.Text += o.text.Flush()
	}
	return 0
}

// why is the finish of an answer that ended as f says.
func (o *output) why(f wire.Finish) wire.Finish {
	if o.text.Stopped() {
		f = wire.FinishStop
	}
	if f == wire.FinishStop && o.ended > 0 {
		f = wire.FinishCalls
	}
	return f
}

// take adds the events of a parser, up to the end of the answer.
func (o *output) take(e *wire.Event, events []calls.Event) {
	for i := range events {
		ev := &events[i]
		if o.over {
			return
		}
		if ev.Kind != o.kind {
			o.turn(e, ev.Kind)
		}
		switch {
		case o.over:
		case ev.Kind == calls.Content:
			o.content += len(ev.Text)
			var said string
			said, o.over = o.text.Push(ev.Text)
			add(e, wire.PieceContent, said)
		case ev.Kind == calls.Reasoning:
			said, _ := o.other.Push(ev.Text)
			add(e, wire.PieceReasoning, said)
		case ev.Kind == calls.CallStart:
			e.Pieces = append(e.Pieces, wire.Piece{Kind: wire.PieceCall, ID: ev.ID, Name: ev.Name})
		case ev.Kind == calls.Args:
			said, _ := o.other.Push(ev.Text)
			add(e, wire.PieceArguments, said)
		case ev.Kind == calls.CallEnd:
			e.Pieces = append(e.Pieces, wire.Piece{Kind: wire.PieceCallEnd})
			o.ended++
			o.over = o.ended == o.callsMax
		}
	}
}

// turn ends a run of events of one kind: what is held of it cannot go on.
func (o *output) turn(e *wire.Event, next calls.Kind) {
	switch last := o.kind; {
	case o.over:
	case last == calls.Content:
		add(e, wire.PieceContent, o.text.Flush())
		o.over = o.text.Stopped()
	case last == calls.Reasoning:
		add(e, wire.PieceReasoning, o.other.Flush())
	case last == calls.Args:
		add(e, wire.PieceArguments, o.other.Flush())
	}
	o.kind = next
}

// add appends text to the event's last piece of that kind, or as a new one.
func add(e *wire.Event, kind wire.PieceKind, text string) {
	last := len(e.Pieces) - 1
	switch {
	case text == "":
	case last < 0 && kind == wire.PieceContent:
		e.Text += text
	case last >= 0 && e.Pieces[last].Kind == kind:
		e.Pieces[last].Text += text
	default:
		e.Pieces = append(e.Pieces, wire.Piece{Kind: kind, Text: text})
	}
}

// at is how far the answer has come, as a number of content bytes: those that were
// given to its text, and those of which it is not yet known what they are.
func (o *output) at() int {
	if o.parser == nil {
		return o.content
	}
	return o.content + o.parser.Held()
}
