package gateway

import (
	"errors"
	"net"
	"os"
	"time"
)

// sse writes server-sent events straight to the connection: what is appended
// to buf leaves with the next flush, as one chunk and one write. The buffer is
// the only memory a slow reader can hold.
//
// Events are data lines and comments alone. A client's decoder that has seen
// an id or a lone retry turns the next comment into an empty event.
type sse struct {
	conn       net.Conn
	stallLimit time.Duration
	chunked    bool // HTTP/1.1; for HTTP/1.0 the body ends with the connection
	buf        []byte
	frame      int // where the chunk under way begins in buf
	written    int64
	lastWrite  time.Time
}

// chunkRoom is the space of a chunk's size line, filled in by flush. Leading
// zeros are allowed (RFC 9112 section 7.1).
const chunkRoom = "00000000\r\n"

// open starts with the response's head, which leaves with the first flush.
func (s *sse) open(head []byte) {
	s.buf = append(s.buf[:0], head...)
	s.begin()
}

func (s *sse) begin() {
	s.frame = len(s.buf)
	if s.chunked {
		s.buf = append(s.buf, chunkRoom...)
	}
}

// flush sends what was appended, if anything was.
func (s *sse) flush() error {
	if s.chunked {
		n := len(s.buf) - s.frame - len(chunkRoom)
		if n == 0 {
			return nil
		}
		for i := 7; i >= 0; i-- {
			s.buf[s.frame+i] = hexDigits[n&15]
			n >>= 4
		}
		s.buf = append(s.buf, "\r\n"...)
	} else if len(s.buf) == s.frame {
		return nil
	}
	return s.send()
}

// close sends what is left and ends the body.
func (s *sse) close() error {
	if err := s.flush(); err != nil {
		return err
	}
	if !s.chunked {
		return nil
	}
	s.buf = append(s.buf[:0], "0\r\n\r\n"...)
	return s.send()
}

func (s *sse) send() error {
	now := time.Now()
	if err := s.conn.SetWriteDeadline(now.Add(s.stallLimit)); err != nil {
		return errClientGone
	}
	n, err := s.conn.Write(s.buf)
	s.written += int64(n)
	s.lastWrite = now
	s.buf = s.buf[:0]
	s.begin()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errWriteStall
	}
	return errClientGone
}

// comment keeps the connection alive through proxies.
func (s *sse) comment() error {
	s.buf = append(s.buf, ": keep-alive\n\n"...)
	return s.flush()
}

var (
	errClientGone = failed(faultClientGone, "the client left before its answer was whole")
	errWriteStall = failed(faultWriteStall, "the client did not read for longer than the write-stall limit")
)
