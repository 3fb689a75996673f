// Package text turns the bytes of generated tokens into text for a client:
// complete UTF-8 characters only, and no part of a stop text.
//
// A Stream belongs to one choice of one request and to one goroutine. It knows
// neither tokens nor the model: the engine's loop pushes the bytes of each token
// and sends the returned text.
package text

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/chars"
)

// Stream holds back text that is not certain yet: an incomplete character, and
// text that may be the beginning of a stop.
//
// The result depends on the bytes alone, not on how they are cut into tokens:
//  1. The text ends before the earliest position at which any stop matches
//     the whole output; among stops that match there the shortest counts.
//  2. Bytes that cannot become a character turn into U+FFFD, one for each maximal
//     prefix of a valid character.
type Stream struct {
	stops    [][]byte  // by length, shortest first
	starts   [256]bool // first bytes of stops
	held     []byte    // pushed, not released
	given    int       // leading bytes of held that Continue gave
	out      []byte    // reused by Push
	released int
	stop     []byte // that ended the text, or nil
	keep     bool   // the text ends after a stop
	off      bool   // no stop counts yet
}

// NewStream returns a stream that ends before any of stops. Empty stops are ignored.
func NewStream(stops []string) *Stream {
	s := &Stream{}
	s.Reset(stops)
	return s
}

// Reset makes s a new stream that ends before any of stops; it keeps its buffers.
func (s *Stream) Reset(stops []string) {
	*s = Stream{stops: s.stops[:0], held: s.held[:0], out: s.out[:0]}
	for _, stop := range stops {
		if stop != "" {
			s.stops = append(s.stops, []byte(stop))
			s.starts[stop[0]] = true
		}
	}
	slices.SortStableFunc(s.stops, func(a, b []byte) int { return len(a) - len(b) })
}

// Keep lets the text end after a stop, which is part of it then.
func (s *Stream) Keep() { s.keep = true }

// Stops says whether stops count in what is pushed from now on.
func (s *Stream) Stops(on bool) { s.off = !on }

// Continue lets a new stream begin with open, the bytes of a character that the
// text before it ends within. They count as pushed. No stop begins in them.
func (s *Stream) Continue(open string) {
	s.held = append(s.held, open...)
	s.given = len(open)
}

// Push takes one token's bytes and returns the text that became certain. stopped
// is true once a push has completed a stop; later pushes are ignored.
func (s *Stream) Push(token []byte) (text string, stopped bool) {
	s.out, stopped = s.PushTo(s.out[:0], token)
	return string(s.out), stopped
}

// PushTo is Push that appends to dst. It allocates only to grow buffers.
func (s *Stream) PushTo(dst, token []byte) ([]byte, bool) {
	if s.Stopped() {
		return dst, true
	}
	s.held = append(s.held, token...)
	return s.release(dst, false), s.Stopped()
}

// Flush ends a run of text and returns what is still held. A stop that waited for
// an earlier one to complete counts now; see Stopped. Later pushes begin a new run.
func (s *Stream) Flush() string {
	s.out = s.release(s.out[:0], true)
	return string(s.out)
}

// Stopped reports whether a stop ended the text.
func (s *Stream) Stopped() bool { return s.stop != nil }

// Stop returns the stop that ended the text, "" for none.
func (s *Stream) Stop() string { return string(s.stop) }

// Released returns how many of the pushed bytes were released as text. It counts
// the tokens' bytes, before U+FFFD replaced any. So a token was released if the
// sum of the lengths pushed up to it is at most Released.
func (s *Stream) Released() int { return s.released }

// release appends the certain text to dst; final means that nothing follows.
func (s *Stream) release(dst []byte, final bool) []byte {
	end := s.certain(final)
	if !s.Stopped() && !final {
		end = min(end, len(s.held)-chars.Open(string(s.held[max(0, len(s.held)-utf8.UTFMax):])))
	}
	dst = chars.Append(dst, s.held[:end])
	s.released += end
	s.given = max(0, s.given-end)
	s.held = append(s.held[:0], s.held[end:]...)
	if s.Stopped() || final {
		s.held = s.held[:0]
	}
	return dst
}

// certain returns the first position at which a stop matches or can still match.
// If it matches, certain sets stop. A stop that matches later waits for one
// that began earlier.
func (s *Stream) certain(final bool) int {
	if len(s.stops) == 0 || s.Stopped() || s.off {
		return len(s.held)
	}
	for i, b := range s.held {
		if i < s.given || !s.starts[b] {
			continue
		}
		rest := s.held[i:]
		for _, stop := range s.stops {
			if bytes.HasPrefix(rest, stop) {
				s.stop = stop
				if s.keep {
					return i + len(stop)
				}
				return i
			}
			if !final && bytes.HasPrefix(stop, rest) {
				return i
			}
		}
	}
	return len(s.held)
}
