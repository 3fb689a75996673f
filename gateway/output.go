package gateway

import (
	"errors"
	"os"
	"time"
)

// output writes one response straight to the connection: what is appended to
// buf leaves with the next flush, as one chunk of a stream, or whole. The
// buffer is the only memory a slow reader can hold.
//
// The events of a stream are data lines and comments alone. A client's decoder
// that has seen an id or a lone retry turns the next comment into an empty
// event.
type output struct {
	conn       *conn
	stallLimit time.Duration
	opened     bool // a response has begun, and fasthttp's must not follow
	chunked    bool // a stream over HTTP/1.1; over HTTP/1.0 the body ends with the connection
	buf        []byte
	frame      int // where the chunk under way begins in buf
	written    int64
	lastWrite  time.Time
	blocked    time.Duration // in writes
}

// chunkRoom is the space of a chunk's size line, filled in by flush. Leading
// zeros are allowed (RFC 9112 section 7.1).
const chunkRoom = "00000000\r\n"

// open begins a response with what buf holds, its head, which leaves with the
// first flush.
func (o *output) open(chunked bool) {
	o.opened, o.chunked = true, chunked
	o.begin()
}

func (o *output) begin() {
	o.frame = len(o.buf)
	if o.chunked {
		o.buf = append(o.buf, chunkRoom...)
	}
}

// flush sends what was appended, if anything was.
func (o *output) flush() error {
	n := len(o.buf) - o.frame
	if o.chunked {
		n -= len(chunkRoom)
	}
	if n == 0 {
		return nil
	}
	if o.chunked {
		for i := 7; i >= 0; i-- {
			o.buf[o.frame+i] = hexDigits[n&15]
			n >>= 4
		}
		o.buf = append(o.buf, "\r\n"...)
	}
	return o.send()
}

// close sends what is left and ends the body.
func (o *output) close() error {
	if err := o.flush(); err != nil || !o.chunked {
		return err
	}
	o.buf = append(o.buf[:0], "0\r\n\r\n"...)
	return o.send()
}

// pieceBytes is what one write may hold, so that a reader who is slow and
// steady is not taken for one who stalls.
const pieceBytes = 64 << 10

func (o *output) send() error {
	for rest := o.buf; len(rest) > 0; {
		began := time.Now()
		n, err := o.conn.writeWithin(rest[:min(len(rest), pieceBytes)], o.stallLimit)
		o.lastWrite = time.Now()
		o.blocked += o.lastWrite.Sub(began)
		o.written += int64(n)
		rest = rest[n:]
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errWriteStall
		case err != nil:
			return errClientGone
		}
	}
	o.buf = o.buf[:0]
	o.begin()
	return nil
}

// comment keeps the connection alive through proxies.
func (o *output) comment() error {
	o.buf = append(o.buf, ": keep-alive\n\n"...)
	return o.flush()
}

var (
	errClientGone = failed(faultClientGone, "the client left before its answer was whole")
	errWriteStall = failed(faultWriteStall, "the client did not read for longer than the write-stall limit")
)
