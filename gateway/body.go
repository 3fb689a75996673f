package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"github.com/valyala/fasthttp"
)

// readBody returns a copy of the request's body that outlives the handler,
// unpacked if it came compressed. bytesMax counts unpacked bytes.
func readBody(c *fasthttp.RequestCtx, bytesMax int) ([]byte, error) {
	if !isJSON(string(c.Request.Header.ContentType())) {
		return nil, failed(faultMediaType, "the Content-Type must be application/json")
	}
	body := c.Request.Body()
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
		return bytes.Clone(body), nil
	case "gzip", "x-gzip":
		return gunzip(body, bytesMax)
	}
	return nil, failed(faultMediaType, "the Content-Encoding must be gzip or none")
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

// isJSON accepts application/json, its +json kin, and silence.
func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	return kind == "" || kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}
