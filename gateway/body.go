package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"github.com/forebay-io/forebay/gateway/httpd"
)

// readBody returns the request's body in memory that outlives the handler,
// unpacked if it came compressed. bytesMax counts unpacked bytes.
func readBody(c httpd.Request, bytesMax int) ([]byte, error) {
	codings := c.Headers("Content-Encoding")
	if len(codings) > 1 {
		return nil, failed(faultMediaType, "the body may have one Content-Encoding: gzip or none")
	}
	coding := ""
	if len(codings) == 1 {
		coding = strings.ToLower(string(codings[0]))
	}
	switch coding {
	case "", "identity":
		return c.TakeBody(), nil
	case "gzip", "x-gzip":
		defer c.DropBody()
		return gunzip(c.Body(), bytesMax)
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

// saysJSON accepts application/json and types that end with +json. It also
// accepts no type and what curl -d sends by itself, but not from a browser, which
// may send such a request to any address without asking first.
func saysJSON(c httpd.Request) bool {
	kind, _, _ := strings.Cut(string(c.Header("Content-Type")), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "application/json":
		return true
	case "", "application/x-www-form-urlencoded":
		return len(c.Header("Origin")) == 0
	}
	return strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}
