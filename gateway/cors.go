package gateway

import (
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

const exposedHeaders = "X-Request-Id, Openai-Processing-Ms, Retry-After, Retry-After-Ms, X-Should-Retry"

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
