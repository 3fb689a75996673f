package gateway

import (
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file writes what an answer has beside content: reasoning and tool calls.
// Reasoning stands under two names, since clients read one or the other.

// callState is one call of a plain answer.
type callState struct {
	id, name  string
	arguments []byte
}

// add keeps a piece of a plain answer.
func (c *choiceState) add(p *wire.Piece) {
	switch p.Kind {
	case wire.PieceContent:
		c.text = append(c.text, p.Text...)
	case wire.PieceReasoning:
		c.reasoning = append(c.reasoning, p.Text...)
	case wire.PieceCall:
		c.calls = append(c.calls, callState{id: p.ID, name: p.Name})
	case wire.PieceArguments:
		if n := len(c.calls); n > 0 {
			c.calls[n-1].arguments = append(c.calls[n-1].arguments, p.Text...)
		}
	}
}

// size is how many bytes of a plain answer are kept.
func (c *choiceState) size() int {
	n := len(c.text) + len(c.reasoning) + c.logprobs.size() + c.relayed.size() + len(c.scored)
	for i := range c.calls {
		n += len(c.calls[i].id) + len(c.calls[i].name) + len(c.calls[i].arguments)
	}
	return n
}

// appendMessage appends the message of a plain answer.
func (c *choiceState) appendMessage(b []byte) []byte {
	b = append(b, `{"role":"assistant","content":`...)
	if len(c.text) == 0 && len(c.calls) > 0 {
		b = append(b, "null"...)
	} else {
		b = appendString(b, string(c.text))
	}
	if len(c.reasoning) > 0 {
		b = appendReasoning(append(b, ','), string(c.reasoning))
	}
	for i := range c.calls {
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		} else {
			b = append(b, ',')
		}
		call := &c.calls[i]
		b = appendCall(append(b, '{'), call.id, call.name)
		b = append(appendString(b, string(call.arguments)), "}}"...)
	}
	if len(c.calls) > 0 {
		b = append(b, ']')
	}
	return append(b, `,"refusal":null}`...)
}

func appendReasoning(b []byte, text string) []byte {
	b = appendString(append(b, `"reasoning_content":`...), text)
	return appendString(append(b, `,"reasoning":`...), text)
}

// appendCall appends a call up to the value of its arguments.
func appendCall(b []byte, id, name string) []byte {
	b = appendString(append(b, `"id":`...), id)
	b = appendString(append(b, `,"type":"function","function":{"name":`...), name)
	return append(b, `,"arguments":`...)
}

// pieceChunk carries a piece of a split answer, of the choice at index. call is the
// number of its last call. A call's end needs no chunk.
func (a *answer) pieceChunk(b []byte, index, call int, p *wire.Piece, l *logprobList) []byte {
	switch p.Kind {
	case wire.PieceCallEnd:
		return b
	case wire.PieceContent:
		return a.textChunk(b, index, p.Text, l)
	}
	b = append(a.chunkOpen(b), `{"index":`...)
	b = append(strconv.AppendInt(b, int64(index), 10), `,"delta":{`...)
	if p.Kind == wire.PieceReasoning {
		b = appendReasoning(b, p.Text)
	} else {
		b = strconv.AppendInt(append(b, `"tool_calls":[{"index":`...), int64(call), 10)
		b = append(b, ',')
		if p.Kind == wire.PieceCall {
			b = append(appendCall(b, p.ID, p.Name), `""}}]`...)
		} else {
			b = append(appendString(append(b, `"function":{"arguments":`...), p.Text), `}}]`...)
		}
	}
	b = append(b, `},"logprobs":`...)
	b = l.append(b)
	return a.chunkClose(append(b, `,"finish_reason":null}`...))
}
