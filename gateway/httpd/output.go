package httpd

import (
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Output writes one answer straight to the connection: what is appended to Buf
// leaves with the next Flush, as one chunk of a stream, or whole. Buf is the
// only memory that a slow reader can hold.
//
// The events of a stream are data lines and comments alone. A client's decoder
// that has seen an id or a lone retry turns the next comment into an empty
// event.
type Output struct {
	request    Request
	stallLimit time.Duration

	// Buf is the caller's to append to, once a response is open.
	Buf []byte
	// For the caller to read.
	Opened    bool // a response has begun, and fasthttp's does not follow
	Written   int64
	LastWrite time.Time
	Blocked   time.Duration // in writes

	chunked bool // a stream over HTTP/1.1; over HTTP/1.0 the body ends with the connection
	frame   int  // where the chunk under way begins in Buf
}

// Why a write failed.
var (
	ErrGone    = errors.New("the client has gone")
	ErrStalled = errors.New("the client did not read for longer than the write-stall limit")
)

// OpenStream begins a 200 stream of events with fields in its head, which leaves
// with the first flush. The head keeps proxies from buffering and compressing.
func (o *Output) OpenStream(fields []Field) {
	o.chunked = o.request.c.Request.Header.IsHTTP11()
	if !o.chunked {
		o.request.CloseAfter()
	}
	o.appendHead("text/event-stream; charset=utf-8\r\nCache-Control: no-cache, no-transform\r\nX-Accel-Buffering: no\r\n", fields)
	if o.chunked {
		o.Buf = append(o.Buf, "Transfer-Encoding: chunked\r\n"...)
	}
	o.open()
}

// OpenPlain begins a 200 answer in JSON of bodyBytes.
func (o *Output) OpenPlain(bodyBytes int, fields []Field) {
	o.appendHead("application/json\r\nContent-Length: "+strconv.Itoa(bodyBytes)+"\r\n", fields)
	o.open()
}

// appendHead appends the status line and the head, which begins with the type
// and what belongs to it.
func (o *Output) appendHead(contentType string, fields []Field) {
	request := &o.request.c.Request.Header
	if request.ConnectionClose() {
		o.request.CloseAfter()
	}
	b := append(make([]byte, 0, 1024), "HTTP/1.1 200 OK\r\nContent-Type: "...)
	b = append(append(b, contentType...), "Date: "...)
	b = append(fasthttp.AppendHTTPDate(b, time.Now()), "\r\n"...)
	b = appendFields(b, fields)
	switch {
	case o.request.c.Response.ConnectionClose():
		b = append(b, "Connection: close\r\n"...)
	case !request.IsHTTP11():
		b = append(b, "Connection: keep-alive\r\n"...)
	}
	o.Buf = b
}

func appendFields(b []byte, fields []Field) []byte {
	for _, f := range fields {
		b = append(append(append(append(b, f.Name...), ": "...), f.Value...), "\r\n"...)
	}
	return b
}

// open ends the head.
func (o *Output) open() {
	o.Buf = append(o.Buf, "\r\n"...)
	o.Opened = true
	o.request.conn.mute.Store(true)
	o.begin()
}

// chunkRoom is the space of a chunk's size line, filled in by Flush. Leading
// zeros are allowed (RFC 9112 section 7.1).
const chunkRoom = "00000000\r\n"

func (o *Output) begin() {
	o.frame = len(o.Buf)
	if o.chunked {
		o.Buf = append(o.Buf, chunkRoom...)
	}
}

// Flush sends what was appended, if anything was.
func (o *Output) Flush() error {
	if !o.endFrame() {
		return nil
	}
	return o.send()
}

// endFrame ends the chunk under way. It tells whether that holds anything.
func (o *Output) endFrame() bool {
	n := len(o.Buf) - o.frame
	if o.chunked {
		n -= len(chunkRoom)
	}
	if n == 0 || !o.chunked {
		return n > 0
	}
	for i := 7; i >= 0; i-- {
		o.Buf[o.frame+i] = hexDigits[n&15]
		n >>= 4
	}
	o.Buf = append(o.Buf, "\r\n"...)
	return true
}

// Close sends what is left and ends the body.
func (o *Output) Close() error {
	if !o.chunked {
		return o.Flush()
	}
	if !o.endFrame() {
		o.Buf = o.Buf[:o.frame]
	}
	o.Buf = append(o.Buf, "0\r\n\r\n"...)
	return o.send()
}

// pieceBytes is what one write may hold, so that a reader who is slow and
// steady is not taken for one who stalls.
const pieceBytes = 64 << 10

func (o *Output) send() error {
	for rest := o.Buf; len(rest) > 0; {
		began := time.Now()
		n, err := o.request.conn.writeWithin(rest[:min(len(rest), pieceBytes)], o.stallLimit)
		o.LastWrite = time.Now()
		o.Blocked += o.LastWrite.Sub(began)
		o.Written += int64(n)
		rest = rest[n:]
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return ErrStalled
		case err != nil:
			return ErrGone
		}
	}
	o.Buf = o.Buf[:0]
	o.begin()
	return nil
}

// Comment keeps the connection alive through proxies.
func (o *Output) Comment() error {
	o.Buf = append(o.Buf, ": keep-alive\n\n"...)
	return o.Flush()
}

const hexDigits = "0123456789abcdef"
