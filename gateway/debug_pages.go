package gateway

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/spans"
)

// Kept are the requests that were kept for whoever asks about them. What it
// returns must not be changed.
type Kept interface {
	// Find is the newest request, kept or running, of that id, client's id or
	// trace id; nil for none.
	Find(name string) *capture.View
	// Trees are the spans of the request that Find returns; nil for none.
	Trees(name string, names spans.Names) []spans.Tree
	// List are those that pass the filter, the newest first, without their steps.
	List(capture.Filter) []*capture.View
}

// debugPages serves what an operator reads of requests and steps: each page
// for people, and with ?format=json for programs. They hold no text of prompts
// and answers, run no script and load nothing.
type debugPages struct {
	g    *Gateway
	kept Kept
}

//go:embed debug
var debugFiles embed.FS

var debugTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"time": fineTime, "path": pathOf, "meaning": meaningOf, "kernelKind": kernelKind, "short": shortID,
	"percent": func(part, whole float64) string { return fmt.Sprintf("%.0f %%", 100*part/max(whole, 1e-9)) },
	"pc":      func(x float64) string { return fmt.Sprintf("%.3f%%", x) },
	"plus":    func(a, b float64) float64 { return a + b },
	"style":   func() template.CSS { return template.CSS(debugStyle) },
}).ParseFS(debugFiles, "debug/*.html"))

var debugStyle = func() string {
	text, err := debugFiles.ReadFile("debug/style.css")
	if err != nil {
		panic(err) // it is in the binary
	}
	return string(text)
}()

// debugPolicy allows the one style sheet by its hash, the empty icon, forms that
// lead back here, and nothing else.
var debugPolicy = func() string {
	sum := sha256.Sum256([]byte(debugStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// writePage answers with the template of that name, whole or not at all.
func writePage(c *fasthttp.RequestCtx, status int, name string, data any) *failure {
	var b bytes.Buffer
	if err := debugTemplates.ExecuteTemplate(&b, name, data); err != nil {
		return asFailure(err)
	}
	h := &c.Response.Header
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", debugPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	c.SetContentType("text/html; charset=utf-8")
	c.SetStatusCode(status)
	c.SetBody(b.Bytes())
	return nil
}

// formatOf is what the page is asked for as: "html" or one of others.
func formatOf(c *fasthttp.RequestCtx, others ...string) (string, *failure) {
	format := string(c.QueryArgs().Peek("format"))
	if format == "" || format == "html" {
		return "html", nil
	}
	for _, other := range others {
		if format == other {
			return format, nil
		}
	}
	return "", &failure{fault: faultInvalid, param: "format", message: "format must be html or " + strings.Join(others, " or ")}
}

const (
	requestsPath = "/debug/requests"
	stepsPath    = "/debug/steps"
)

// requestPath is the page of one request.
func requestPath(id string) string { return requestsPath + "/" + url.PathEscape(id) }

// unknownRequest is the id of requests of which only their steps are known.
const unknownRequest = "unknown"

// pathOf is the path of the page of a request that another one names, "" where
// it is known no more.
func pathOf(id string) string {
	if id == "" || id == unknownRequest {
		return ""
	}
	return requestPath(id)
}

// shortID is enough of an id to find the request by.
func shortID(id string) string {
	const enough = 12
	if len(id) > enough {
		return id[:enough]
	}
	return id
}

// fineTime is shortTime with digits behind the point where the time is short.
func fineTime(ms float64) string {
	switch {
	case ms > 0 && ms < 0.1:
		return fmt.Sprintf("%.0f µs", 1000*ms)
	case ms > 0 && ms < 1:
		return fmt.Sprintf("%.2f ms", ms)
	case ms > 0 && ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return shortTime(ms)
}
