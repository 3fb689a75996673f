package gateway

import (
	"fmt"

	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/identity"
)

// unreadRoute is the route in records of requests that were not read whole.
const unreadRoute = "unread"

// unread answers a request that could not be read.
func (g *Gateway) unread(c httpd.Request, why httpd.Why) {
	caller, _ := g.callerOf(c, nil)
	g.refuseUnread(c, caller, g.unreadFailure(why))
}

func (g *Gateway) unreadFailure(why httpd.Why) *failure {
	switch why {
	case httpd.HeaderTooLarge:
		return failed(faultHeaderTooLarge, fmt.Sprintf("the request line and headers may have at most %d bytes", g.cfg.Limits.HeaderBytesMax))
	case httpd.BodyTooLarge:
		return errBodyTooLarge(g.cfg.Limits.BodyBytesMax)
	case httpd.TimedOut:
		return failed(faultRequestTimeout, "the request did not arrive in time")
	case httpd.ClientGone:
		return errClientGone
	case httpd.UnknownCoding:
		return failed(faultTransferCoding, "the Transfer-Encoding must be chunked, or absent")
	}
	return failed(faultInvalid, "the request is not valid HTTP")
}

// refuseUnread refuses a request whose body has not been read, and finishes its record.
func (g *Gateway) refuseUnread(c httpd.Request, caller *identity.Caller, f *failure) {
	r := newRecord(c, caller, unreadRoute)
	c.SetHeader(requestIDHeader, publicID(&r))
	noteFailure(&r, f)
	g.recorder.Finish(&r)
	g.cors.setHeaders(c)
	writeFailure(c, f)
}

// fullAnswer is the answer to a connection over the limit.
func fullAnswer() ([]httpd.Field, []byte) {
	f := failed(faultConnections, "too many connections are open; try again")
	return []httpd.Field{{Name: "Retry-After", Value: "1"}, {Name: "X-Should-Retry", Value: "true"}, {Name: requestIDHeader, Value: newID()}}, f.appendErrorObject(nil)
}

func errBodyTooLarge(bytesMax int) *failure {
	return failed(faultBodyTooLarge, fmt.Sprintf("the body may have at most %d bytes, counted after decompression", bytesMax))
}
