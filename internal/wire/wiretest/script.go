package wiretest

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// Script says what the fake does with one generation. The zero Script
// finishes at once with FinishStop and no text.
type Script struct {
	// Pieces are the texts of every choice, one event and one token each.
	Pieces []string
	// Choices, where set, are the pieces by choice, instead of Pieces. A choice
	// beyond the list has no pieces.
	Choices [][]string
	// Split, where set, are the pieces of every token of every choice, instead of
	// Pieces. Leading content is the event's Text, as an engine has it.
	Split [][]wire.Piece
	// Endless repeats the pieces (or "tok " where there are none) until
	// MaxTokens or a cancel.
	Endless bool
	// Hang says nothing more after the pieces, and does not end.
	Hang bool
	// Err ends the generation with this error after the pieces.
	Err *wire.Error
	// Finish is that of a choice after its last piece; zero is FinishStop. A
	// choice that reaches MaxTokens first finishes with FinishLength.
	Finish wire.Finish
	// FirstDelay passes before the first piece, like a prefill; Delay passes
	// before each further piece.
	FirstDelay, Delay time.Duration
	// CachedTokens is reported as the reused part of the prompt.
	CachedTokens int
	// PrefillTokens is how many prompt tokens count as computed by a cancel before
	// the first piece.
	PrefillTokens int
	// Deaf never answers a cancel, as an engine that hangs.
	Deaf bool
}

// pieces are those of one choice.
func (s *Script) pieces(choice int) []string {
	switch {
	case s.Choices == nil:
		return s.Pieces
	case choice < len(s.Choices):
		return s.Choices[choice]
	}
	return nil
}

// piece is the n-th piece of a choice, or false where there is none.
func (s *Script) piece(choice, n int) (string, bool) {
	all := s.pieces(choice)
	switch {
	case n < len(s.Split):
		return "", true
	case n < len(all):
		return all[n], true
	case !s.Endless:
		return "", false
	case len(all) == 0:
		return "tok ", true
	}
	return all[n%len(all)], true
}
