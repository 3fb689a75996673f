package gateway

import (
	"bytes"

	"github.com/forebay-io/forebay/internal/wire"
)

// items reads the events of an answer as a row of messages, reasoning and calls, one after the
// other, as the Responses and the Messages API have it. What they write of it is their spelling.
type items struct {
	spelling
	all         []item
	open        bool   // the last item goes on
	lead        []byte // white space that stands before a message, or is none
	relayedCall string // index of the call that another server is at
	finish      wire.Finish
	stopText    string // that ended the answer, or ""
}

type itemKind uint8

const (
	messageItem itemKind = iota
	reasoningItem
	callItem
)

// item is a message, reasoning or a call.
type item struct {
	kind         itemKind
	id           string // in the Responses API
	callID, name string
	text         []byte // or arguments
	logprobs     []byte // entries of the text's
	cut          bool   // it is not whole
}

// spelling appends what an API writes when an item begins, goes on and ends.
type spelling interface {
	started(b []byte, i *item) []byte
	grown(b []byte, i *item, text string) []byte
	stopped(b []byte, i *item) []byte
}

// event takes an event of the answer.
func (s *items) event(b []byte, e *wire.Event) []byte {
	b = s.say(b, e.Text)
	for i := range e.Pieces {
		b = s.piece(b, &e.Pieces[i])
	}
	if e.Relayed != nil {
		b = s.relay(b, e.Relayed)
	}
	if e.Finish != wire.FinishNone {
		s.finish, s.stopText = e.Finish, e.StopText
	}
	return b
}

// say adds content. White space alone makes no message.
func (s *items) say(b []byte, text string) []byte {
	if text == "" {
		return b
	}
	if !s.at(messageItem) {
		s.lead = append(s.lead, text...)
		if len(bytes.TrimSpace(s.lead)) == 0 {
			return b
		}
		text = string(s.lead)
		b = s.start(b, item{kind: messageItem})
	}
	return s.more(b, text)
}

// piece adds a part of the answer that is not plain content.
func (s *items) piece(b []byte, p *wire.Piece) []byte {
	switch p.Kind {
	case wire.PieceContent:
		return s.say(b, p.Text)
	case wire.PieceReasoning:
		if !s.at(reasoningItem) {
			b = s.start(b, item{kind: reasoningItem})
		}
		b = s.more(b, p.Text)
	case wire.PieceCall:
		b = s.start(b, item{kind: callItem, callID: p.ID, name: p.Name})
	case wire.PieceArguments:
		if s.at(callItem) {
			b = s.more(b, p.Text)
		}
	case wire.PieceCallEnd:
		if s.at(callItem) {
			b = s.stop(b, false)
		}
	}
	return b
}

// relay adds what another server sent beside text: members of a chat's delta.
func (s *items) relay(b []byte, relayed *wire.Relayed) []byte {
	delta := append(append([]byte{'{'}, relayed.Delta...), '}')
	for _, name := range []string{"reasoning_content", "reasoning"} {
		if text := member(delta, name); isString(text) {
			if said := unquote(text); said != "" {
				b = s.piece(b, &wire.Piece{Kind: wire.PieceReasoning, Text: said})
			}
			break
		}
	}
	for _, one := range elements(member(delta, "tool_calls")) {
		function := member(one, "function")
		id, name, arguments := member(one, "id"), member(function, "name"), member(function, "arguments")
		if index := string(member(one, "index")); isString(id) && unquote(id) != "" && (!s.at(callItem) || index != s.relayedCall) {
			s.relayedCall = index
			called := wire.Piece{Kind: wire.PieceCall, ID: unquote(id)}
			if isString(name) {
				called.Name = unquote(name)
			}
			b = s.piece(b, &called)
		}
		if isString(arguments) {
			b = s.piece(b, &wire.Piece{Kind: wire.PieceArguments, Text: unquote(arguments)})
		}
	}
	return b
}

func (s *items) at(kind itemKind) bool { return s.open && s.all[len(s.all)-1].kind == kind }

// start ends the item that is open and begins another.
func (s *items) start(b []byte, i item) []byte {
	if s.open {
		b = s.stop(b, false)
	}
	s.all, s.open, s.lead = append(s.all, i), true, s.lead[:0]
	return s.started(b, &s.all[len(s.all)-1])
}

// more adds text to the item that is open.
func (s *items) more(b []byte, text string) []byte {
	i := &s.all[len(s.all)-1]
	i.text = append(i.text, text...)
	return s.grown(b, i, text)
}

// stop ends the item that is open; cut says that it is not whole.
func (s *items) stop(b []byte, cut bool) []byte {
	i := &s.all[len(s.all)-1]
	i.cut, s.open = cut, false
	return s.stopped(b, i)
}

// end closes what is open. An answer without text or call is an empty message.
func (s *items) end(b []byte) []byte {
	if s.open {
		b = s.stop(b, s.cut())
	}
	for i := range s.all {
		if s.all[i].kind != reasoningItem {
			return b
		}
	}
	return s.stop(s.start(b, item{kind: messageItem}), s.cut())
}

// cut says that the answer did not end by itself.
func (s *items) cut() bool { return s.finish == wire.FinishLength || s.finish == wire.FinishFilter }

// size is how many bytes are held.
func (s *items) size() (bytes int) {
	for i := range s.all {
		bytes += len(s.all[i].text) + len(s.all[i].logprobs)
	}
	return bytes
}
