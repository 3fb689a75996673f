package upstream

import (
	"bytes"

	"github.com/forebay-io/forebay/internal/wire"
)

// exact has the server's own events passed on as they came (upstream.relay). The event
// that ends a choice, and the usage, are held back until the whole answer was judged, as
// in the other mode: else an answer that breaks after them would have looked complete.
type exact struct {
	most  int      // bytes that are held
	held  [][]byte // events that end a choice
	bytes int
	usage []byte // the last event that has nothing but the usage
}

// take gives the events of one chunk its data. It may add one, for a chunk that brings
// nothing else; x is nil in the other mode.
func (x *exact) take(events []wire.Event, c *chunk, data []byte) ([]wire.Event, *wire.Error) {
	if x == nil || string(data) == "null" {
		return events, nil
	}
	for i := range events {
		events[i].Relayed.Exact = true
	}
	data = exactLine(data)
	switch {
	case len(c.Choices) == 0 && c.Usage != nil:
		x.usage = data
	case len(c.Choices) == 1 && c.Choices[0].Finish != "": // with others beside it, theirs could not wait
		if x.bytes += len(data); x.bytes > x.most {
			return nil, wire.Errorf(wire.Internal, "the upstream ended its choices by more than upstream.event_bytes_max")
		}
		x.held = append(x.held, data)
	case len(events) > 0:
		events[0].Relayed.Lines = [][]byte{data}
	default:
		choice := 0
		if len(c.Choices) > 0 {
			choice = c.Choices[0].Index
		}
		events = append(events, wire.Event{Choice: choice, Relayed: &wire.Relayed{Exact: true, Lines: [][]byte{data}}})
	}
	return events, nil
}

// last gives the last events of a whole answer, one for each choice, what was held back.
func (x *exact) last(i int, c *answerChoice, of int) *wire.Relayed {
	r := &wire.Relayed{Exact: x != nil && !c.guessed}
	if x == nil {
		return r
	}
	if i == 0 {
		r.Lines = x.held
	}
	if i == of-1 {
		r.UsageLine = x.usage
	}
	return r
}

// exactLine copies the data of an event. It is one line of UTF-8 for every reader: data
// that came in several lines is compacted.
func exactLine(data []byte) []byte {
	data = bytes.ToValidUTF8(data, []byte("\ufffd"))
	if bytes.ContainsAny(data, "\r\n") {
		return oneLine(data)
	}
	return data
}
