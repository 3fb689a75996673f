package gateway

import (
	"net"
	"net/http"
	"strings"

	"github.com/forebay-io/forebay/gateway/httpd"
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

// mayCall says whether a request may generate tokens. One that a browser's page
// sent may, if the page's origin is listed or is our own address. On loopback a
// name in our address must be localhost: the owner of a page can point any other
// name here (DNS rebinding).
func (c *cors) mayCall(r httpd.Request) bool {
	origins := r.Headers("Origin")
	switch {
	case len(origins) == 0:
		return true
	case len(origins) > 1:
		return false
	case c.allowed(origins[0]) != "":
		return true
	}
	_, origin, _ := strings.Cut(string(origins[0]), "://")
	if origin == "" || !strings.EqualFold(origin, string(r.Host())) {
		return false
	}
	address, ok := r.LocalAddr().(*net.TCPAddr)
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
	classHeader + ", " + demotedHeader + ", " + waitHeader + ", " + waitReasonHeader + ", " + predictedHeader + ", " + ignoredHeader + ", " + groupHeader + ", " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// setHeaders marks any answer, errors included.
func (c *cors) setHeaders(r httpd.Request) {
	for _, f := range c.append(nil, r) {
		r.SetHeader(f.Name, f.Value)
	}
}

// append appends the fields that mark any answer.
func (c *cors) append(fields []httpd.Field, r httpd.Request) []httpd.Field {
	if !c.on() {
		return fields
	}
	fields = append(fields, httpd.Field{Name: "Vary", Value: "Origin"})
	if allowed := c.allowed(r.Header("Origin")); allowed != "" {
		fields = append(fields, httpd.Field{Name: "Access-Control-Allow-Origin", Value: allowed}, httpd.Field{Name: "Access-Control-Expose-Headers", Value: exposedHeaders})
	}
	return fields
}

// preflight answers OPTIONS, which needs no key.
func (c *cors) preflight(r httpd.Request, methods string) {
	if c.allowed(r.Header("Origin")) != "" {
		r.SetHeader("Access-Control-Allow-Methods", methods)
		r.SetHeader("Access-Control-Allow-Headers", "*, Authorization")
		if asked := r.Header("Access-Control-Request-Headers"); len(asked) > 0 {
			r.SetHeader("Access-Control-Allow-Headers", string(asked))
		}
		r.SetHeader("Access-Control-Max-Age", "600")
	}
	r.SetHeader("Allow", methods)
	r.AnswerEmpty(http.StatusNoContent)
}
