package gateway

import (
	"net"
	"strings"

	"github.com/valyala/fasthttp"
)

// cors says which browser origins may call. The zero value is off.
type cors struct {
	any     bool
	origins map[string]bool
}

func newCORS(list string) cors {
	c := cors{origins: map[string]bool{}}
	for origin := range strings.SplitSeq(list, ",") {
		switch origin = strings.TrimSpace(origin); origin {
		case "":
		case "*":
			c.any = true
		default:
			c.origins[origin] = true
		}
	}
	return c
}

func (c *cors) on() bool { return c.any || len(c.origins) > 0 }

// allowed is the origin to name in the response, or "".
func (c *cors) allowed(origin []byte) string {
	switch {
	case len(origin) == 0:
		return ""
	case c.any:
		return "*"
	case c.origins[string(origin)]:
		return string(origin)
	}
	return ""
}

// mayCall says whether the page that sent a request, if one did, may have
// tokens made: it must be listed, or come from our own address. On loopback a
// name in our address must be localhost: any other may have been pointed here
// by the page's owner (DNS rebinding).
func (c *cors) mayCall(h *fasthttp.RequestHeader, local net.Addr) bool {
	origins := h.PeekAll("Origin")
	switch {
	case len(origins) == 0:
		return true
	case len(origins) > 1:
		return false
	case c.allowed(origins[0]) != "":
		return true
	}
	_, origin, _ := strings.Cut(string(origins[0]), "://")
	if origin == "" || !strings.EqualFold(origin, string(h.Host())) {
		return false
	}
	address, ok := local.(*net.TCPAddr)
	if !ok || !address.IP.IsLoopback() {
		return true
	}
	name := origin
	if host, _, err := net.SplitHostPort(origin); err == nil {
		name = host
	}
	return strings.EqualFold(name, "localhost") || net.ParseIP(strings.Trim(name, "[]")) != nil
}

const exposedHeaders = "X-Request-Id, Openai-Processing-Ms, Retry-After, Retry-After-Ms, X-Should-Retry, " +
	classHeader + ", " + demotedHeader + ", " + waitHeader + ", " + waitReasonHeader + ", " + predictedHeader + ", " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// setHeaders marks any response, errors included.
func (c *cors) setHeaders(h *fasthttp.ResponseHeader, origin []byte) {
	if !c.on() {
		return
	}
	h.Set("Vary", "Origin")
	if allowed := c.allowed(origin); allowed != "" {
		h.Set("Access-Control-Allow-Origin", allowed)
		h.Set("Access-Control-Expose-Headers", exposedHeaders)
	}
}

// appendHeaders is setHeaders for a head written by hand.
func (c *cors) appendHeaders(b, origin []byte) []byte {
	if !c.on() {
		return b
	}
	b = append(b, "Vary: Origin\r\n"...)
	if allowed := c.allowed(origin); allowed != "" {
		b = append(b, "Access-Control-Allow-Origin: "+allowed+"\r\nAccess-Control-Expose-Headers: "+exposedHeaders+"\r\n"...)
	}
	return b
}

// preflight answers OPTIONS. It costs nothing and needs no key.
func (c *cors) preflight(ctx *fasthttp.RequestCtx, methods string) {
	h := &ctx.Response.Header
	if c.allowed(ctx.Request.Header.Peek("Origin")) != "" {
		h.Set("Access-Control-Allow-Methods", methods)
		h.Set("Access-Control-Allow-Headers", "*, Authorization")
		if asked := ctx.Request.Header.Peek("Access-Control-Request-Headers"); len(asked) > 0 {
			h.SetBytesV("Access-Control-Allow-Headers", asked)
		}
		h.Set("Access-Control-Max-Age", "600")
	}
	h.Set("Allow", methods)
	ctx.SetStatusCode(fasthttp.StatusNoContent)
}
