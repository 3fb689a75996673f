package httpd

import (
	"bytes"
	"errors"
	"io"
	"net"
	"regexp"
	"syscall"

	"github.com/valyala/fasthttp"
)

// Why says why a request could not be read.
type Why uint8

// The reasons. The list is closed.
const (
	Malformed      Why = iota // not HTTP
	HeaderTooLarge            // over HeaderBytesMax
	BodyTooLarge              // over BodyBytesMax
	TimedOut                  // not whole within HeaderLimit or BodyLimit
	UnknownCoding             // a Transfer-Encoding other than chunked
	ClientGone                // the client left; no answer will reach it
)

// unread is fasthttp's handler of what it could not read.
func (s *Server) unread(c *fasthttp.RequestCtx, err error) { s.refuse(c, whyOf(err)) }

func whyOf(err error) Why {
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.As(err, &small):
		return HeaderTooLarge
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return BodyTooLarge
	case errors.As(err, &netErr) && netErr.Timeout():
		return TimedOut
	case isEnd(err):
		return ClientGone
	case unknownCoding.MatchString(err.Error()):
		return UnknownCoding
	}
	return Malformed
}

// refuse has the handler answer while request bytes may still be on their way.
func (s *Server) refuse(c *fasthttp.RequestCtx, why Why) {
	r := requestOf(c)
	told := why != ClientGone
	r.conn.mute.Store(!told)
	r.conn.linger.Store(told)
	s.handler.Unread(r, why)
	r.CloseAfter()
}

// isEnd tells that the client left before its request was whole.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// unknownCoding tells an unknown coding from known ones that are misplaced.
// fasthttp has one error for both, and the name in its text alone.
var unknownCoding = regexp.MustCompile(`unsupported transfer-encoding: "[^",]*"`)

// hidesCoding finds a Transfer-Encoding that fasthttp drops without an error,
// identity, after which it would read the body as the next request.
func hidesCoding(h *fasthttp.RequestHeader) bool {
	for line := range bytes.SplitSeq(h.RawHeaders(), []byte("\n")) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(key, []byte("Transfer-Encoding")) && !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
			return true
		}
	}
	return false
}
