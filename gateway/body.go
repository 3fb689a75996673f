package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"github.com/valyala/fasthttp"
)

// readBody returns the request's body in memory that outlives the handler,
// unpacked if it came compressed. bytesMax counts unpacked bytes.
func readBody(c *fasthttp.RequestCtx, bytesMax int) ([]byte, error) {
	codings := c.Request.Header.PeekAll("Content-Encoding")
	if len(codings) > 1 {
		return nil, failed(faultMediaType, "the body may have one Content-Encoding: gzip or none")
	}
	coding := ""
	if len(codings) == 1 {
		coding = strings.ToLower(string(codings[0]))
	}
	switch coding {
	case "", "identity":
		return ownBody(c), nil
	case "gzip", "x-gzip":
		defer c.Request.ResetBody()
		return gunzip(c.Request.Body(), bytesMax)
	}
	return nil, failed(faultMediaType, "the Content-Encoding must be gzip or none")
}

// ownBody takes the body over, so that it lies in memory once. A small body in
// a large buffer is copied, and the buffer given back.
func ownBody(c *fasthttp.RequestCtx) []byte {
	if body := c.Request.Body(); cap(body) > 2*len(body) {
		defer c.Request.ResetBody()
		return bytes.Clone(body)
	}
	return c.Request.SwapBody(nil)
}

func gunzip(packed []byte, bytesMax int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, failed(faultInvalid, "the body is not valid gzip")
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(bytesMax)+1))
	switch {
	case len(body) > bytesMax:
		return nil, errBodyTooLarge(bytesMax)
	case err != nil:
		return nil, failed(faultInvalid, "the body is not valid gzip")
	}
	return body, nil
}

// saysJSON accepts application/json and its +json kin. Of what does not come
// from a browser, which may send such things to any address without asking
// first, it also accepts silence and what curl -d says unasked.
func saysJSON(h *fasthttp.RequestHeader) bool {
	kind, _, _ := strings.Cut(string(h.ContentType()), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "application/json":
		return true
	case "", "application/x-www-form-urlencoded":
		return len(h.Peek("Origin")) == 0
	}
	return strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}
