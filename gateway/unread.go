package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"syscall"

	"github.com/valyala/fasthttp"
)

// parseFailed answers what fasthttp could not read. The connection is closed.
func (g *Gateway) parseFailed(c *fasthttp.RequestCtx, err error) {
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.As(err, &small):
		g.refuseUnread(c, failed(faultHeaderTooLarge, fmt.Sprintf("the request line and headers may have at most %d bytes", g.cfg.Limits.HeaderBytesMax)))
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		g.refuseUnread(c, errBodyTooLarge(g.cfg.Limits.BodyBytesMax))
	case errors.As(err, &netErr) && netErr.Timeout():
		g.refuseUnread(c, failed(faultRequestTimeout, "the request did not arrive in time"))
	case isEnd(err):
		g.refuseUnread(c, errClientGone)
	case unknownCoding.MatchString(err.Error()):
		g.refuseUnread(c, errTransferCoding)
	default:
		g.refuseUnread(c, failed(faultInvalid, "the request is not valid HTTP"))
	}
}

// unread is the route, in records, of what was not read whole.
const unread = "unread"

// isEnd tells that the client left before its request was whole.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// unknownCoding tells a coding that nobody here knows from those that are
// misplaced. fasthttp has one error for both, and the name only in its words.
var unknownCoding = regexp.MustCompile(`unsupported transfer-encoding: "[^",]*"`)

var errTransferCoding = failed(faultTransferCoding, "the Transfer-Encoding must be chunked, or absent")

// refuseUnread answers while request bytes may still be on their way.
func (g *Gateway) refuseUnread(c *fasthttp.RequestCtx, f *failure) {
	nc := c.Conn().(*conn)
	gone := f.fault == faultClientGone
	nc.mute.Store(gone)
	nc.linger.Store(!gone)
	r := newRecord(&c.Request.Header, g.tenantOf(&c.Request.Header), unread)
	c.Response.Header.Set(requestIDHeader, publicID(&r))
	noteFailure(&r, f)
	g.recorder.Finish(&r)
	g.cors.setHeaders(&c.Response.Header, c.Request.Header.Peek("Origin"))
	writeFailure(c, f)
	c.SetConnectionClose()
}

func errBodyTooLarge(bytesMax int) *failure {
	return failed(faultBodyTooLarge, fmt.Sprintf("the body may have at most %d bytes, counted after decompression", bytesMax))
}
