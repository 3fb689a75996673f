// Package text turns the bytes of generated tokens into text that a client may
// see: whole UTF-8 characters only, and nothing of a stop text.
//
// A Stream belongs to one choice of one request and to one goroutine. It knows
// neither tokens nor the model; the engine's loop pushes each token's bytes and
// sends on what comes back.
package text

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// Stream holds back what may not be shown yet: a character whose last bytes
// have not come, and text that may turn out to be the beginning of a stop.
//
// The result depends on the bytes alone, never on how they were cut:
//  1. The text ends before the earliest position at which any stop matches
//     the whole output; among stops that match there the shortest counts.
//  2. Bytes that can no longer become a character turn into U+FFFD, one for
//     each longest run that a valid character could have begun with.
type Stream struct {
	stops    [][]byte  // by length, shortest first
	starts   [256]bool // first bytes of stops
	held     []byte    // pushed, not released
	out      []byte    // reused by Push
	released int
	stopped  bool
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

// Push takes one token's bytes and returns the text that became certain.
// stopped is true from the push that completed a stop on; later pushes are ignored.
func (s *Stream) Push(token []byte) (text string, stopped bool) {
	s.out, stopped = s.PushTo(s.out[:0], token)
	return string(s.out), stopped
}

// PushTo is Push that appends to dst. It allocates only to grow buffers.
func (s *Stream) PushTo(dst, token []byte) ([]byte, bool) {
	if s.stopped {
		return dst, true
	}
	s.held = append(s.held, token...)
	return s.release(dst, false), s.stopped
}

// Flush ends the stream and returns what was still held. A stop that waited
// for an earlier one to complete counts now; Stopped tells.
func (s *Stream) Flush() string {
	s.out = s.release(s.out[:0], true)
	return string(s.out)
}

// Stopped reports whether a stop ended the text.
func (s *Stream) Stopped() bool { return s.stopped }

// Released is how many of the pushed bytes have been released as text. It
// counts the tokens' bytes, before any U+FFFD took their place, so a token is
// out when the sum of the lengths pushed up to it is at most this.
func (s *Stream) Released() int { return s.released }

// release appends what is certain to dst; final says that nothing follows.
func (s *Stream) release(dst []byte, final bool) []byte {
	end := s.certain(final)
	if !s.stopped && !final {
		end = min(end, len(s.held)-partial(s.held))
	}
	dst = appendValid(dst, s.held[:end])
	s.released += end
	s.held = append(s.held[:0], s.held[end:]...)
	if s.stopped || final {
		s.held = s.held[:0]
	}
	return dst
}

// certain is the first position at which a stop matches or might still match;
// it sets stopped in the former case. A stop that matches later has to wait
// for one that began earlier.
func (s *Stream) certain(final bool) int {
	if len(s.stops) == 0 || s.stopped {
		return len(s.held)
	}
	for i, b := range s.held {
		if !s.starts[b] {
			continue
		}
		rest := s.held[i:]
		for _, stop := range s.stops {
			if bytes.HasPrefix(rest, stop) {
				s.stopped = true
				return i
			}
			if !final && bytes.HasPrefix(stop, rest) {
				return i
			}
		}
	}
	return len(s.held)
}

// partial is the length of an unfinished character at the end of p, 0 to 3.
func partial(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		tail := p[len(p)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// appendValid appends p as valid UTF-8.
func appendValid(dst, p []byte) []byte {
	if utf8.Valid(p) {
		return append(dst, p...)
	}
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		if r == utf8.RuneError && size == 1 {
			for size < len(p) && !utf8.FullRune(p[:size+1]) {
				size++
			}
			dst = append(dst, "\uFFFD"...)
		} else {
			dst = append(dst, p[:size]...)
		}
		p = p[size:]
	}
	return dst
}
