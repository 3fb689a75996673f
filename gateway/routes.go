package gateway

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// route is one path and how it is served.
type route struct {
	path    string
	methods string // as in Allow, without OPTIONS
	name    string // in records
	kind    routeKind
	open    bool // needs no key
	// serve answers, or says why not.
	serve func(httpd.Request) *failure
	// serveTo is in place of serve where the answer depends on who asks.
	serveTo func(httpd.Request, *identity.Caller) *failure
	decode  decoder // of generateRoute, which has no serve
}

type routeKind uint8

const (
	plainRoute    routeKind = iota // one record for each request
	probeRoute                     // one record for each refusal
	generateRoute                  // takes JSON for the engine; generate keeps the record
)

func (g *Gateway) clientRoutes() []route {
	const get = "GET, HEAD"
	return []route{
		{path: "/v1/chat/completions", methods: "POST", name: "chat_completions", kind: generateRoute, decode: chatCall},
		{path: "/v1/completions", methods: "POST", name: "completions", kind: generateRoute, decode: textCall},
		{path: "/v1/responses", methods: "POST", name: "responses", kind: generateRoute, decode: responsesCall},
		{path: messagesPath, methods: "POST", name: "messages", kind: generateRoute, decode: messagesCall},
		{path: messagesPath + "/count_tokens", methods: "POST", name: "count_tokens", kind: generateRoute, decode: countCall},
		{path: "/v1/embeddings", methods: "POST", name: "embeddings", kind: generateRoute, decode: embeddingsCall},
		{path: "/v1/rerank", methods: "POST", name: "rerank", kind: generateRoute, decode: rerankCall},
		{path: "/v1/models", methods: get, name: "models", serveTo: g.listModels},
		{path: "/healthz", methods: get, name: "probe", kind: probeRoute, open: true, serve: g.healthz},
		{path: "/readyz", methods: get, name: "probe", kind: probeRoute, open: true, serve: g.readyz},
		{path: "/version", methods: get, name: "version", open: true, serve: g.serveVersion},
	}
}

const (
	modelsPath   = "/v1/models/"
	messagesPath = "/v1/messages"
	maxPathLog   = 64
)

// find returns the route of the path exactly as it was sent, nil for none. No
// other spelling of a path is served, so none can evade a rule.
func (g *Gateway) find(c httpd.Request) *route {
	path := c.Path()
	if strings.HasPrefix(path, modelsPath) && len(path) > len(modelsPath) {
		return &route{path: path, methods: "GET, HEAD", name: "model", serveTo: g.oneModel}
	}
	for i := range g.routes {
		if g.routes[i].path == path {
			return &g.routes[i]
		}
	}
	return nil
}

// clientHandler is where the requests of clients come in.
type clientHandler struct{ g *Gateway }

// Serve implements httpd.Handler.
func (h clientHandler) Serve(c httpd.Request) {
	g := h.g
	g.cors.setHeaders(c)
	r := g.find(c)
	caller, why := g.callerOf(c, r)
	f := g.screen(c, r, caller, why)
	switch {
	case f != nil, r.kind == plainRoute, c.Method() == http.MethodOptions:
		g.answer(c, r, recorded(caller, why), f)
	case r.kind == generateRoute:
		g.generate(c, caller, r)
	default:
		_ = r.serve(c) // a probe does not fail
	}
}

// nameOf is the route in records, from a closed list.
func nameOf(r *route) string {
	if r == nil {
		return "unknown"
	}
	return r.name
}

// answer serves a request that generates no text, or refuses it with f. It
// finishes one record.
func (g *Gateway) answer(c httpd.Request, r *route, caller *identity.Caller, f *failure) {
	record := newRecord(c, caller, nameOf(r))
	c.SetHeader(requestIDHeader, publicID(&record))
	switch {
	case f != nil:
	case c.Method() == http.MethodOptions:
		g.cors.preflight(c, g.allow(r))
	case r.serveTo != nil:
		f = r.serveTo(c, caller)
	default:
		f = r.serve(c)
	}
	record.Outcome, record.Status = telemetry.OK, c.Status()
	if f != nil {
		writeFailure(c, f)
		noteFailure(&record, f)
	}
	record.BytesIn, record.BytesOut = int64(len(c.Body())), int64(c.AnswerBytes())
	record.Finished = wire.Monotonic()
	g.recorder.Finish(&record)
}

// allow lists a route's methods for the Allow header.
func (g *Gateway) allow(r *route) string {
	if g.cors.on() {
		return r.methods + ", OPTIONS"
	}
	return r.methods
}

func hasMethod(methods, method string) bool {
	for allowed := range strings.SplitSeq(methods, ", ") {
		if allowed == method {
			return true
		}
	}
	return false
}

// screen refuses what the headers alone rule out; it returns nil for the rest.
func (g *Gateway) screen(c httpd.Request, r *route, caller *identity.Caller, why *identity.Refusal) *failure {
	method := c.Method()
	switch {
	case expectsMore(c):
		return failed(faultExpectation, "the Expect header may only be 100-continue")
	case r == nil:
		path := clip(c.Path(), maxPathLog)
		return &failure{fault: faultPathNotFound, message: "there is nothing at " + strings.ToValidUTF8(path, "?"), detail: strconv.QuoteToASCII(path)}
	case !hasMethod(g.allow(r), method):
		return errMethod(g.allow(r))
	case method == http.MethodOptions:
		return nil
	case r.kind != generateRoute:
		if r.open {
			return nil
		}
		return g.authorize(r, caller, why)
	case !g.cors.mayCall(c):
		return failed(faultOrigin, "browser pages of this Origin may not call here; gateway.cors_origins lists those that may")
	case !saysJSON(c):
		return failed(faultMediaType, "the Content-Type must be application/json")
	}
	return g.authorize(r, caller, why)
}

func errMethod(allow string) *failure {
	f := failed(faultMethod, "the method must be one of "+allow)
	if !strings.Contains(allow, ",") {
		f.message = "the method must be " + allow
	}
	f.allow = allow
	return f
}

// expectsMore reports an expectation that this server cannot meet.
func expectsMore(c httpd.Request) bool {
	for _, expectation := range c.Headers("Expect") {
		if !bytes.EqualFold(expectation, []byte("100-continue")) {
			return true
		}
	}
	return false
}

// Expect implements httpd.Handler: a body that will be refused is never sent.
func (h clientHandler) Expect(c httpd.Request) (proceed bool) {
	g := h.g
	r := g.find(c)
	caller, why := g.callerOf(c, r)
	f := g.screen(c, r, caller, why)
	switch {
	case f != nil:
	case c.ContentLength() > g.cfg.Limits.BodyBytesMax:
		f = errBodyTooLarge(g.cfg.Limits.BodyBytesMax)
	case g.draining.Load():
		f = errDraining
	default:
		return true
	}
	g.refuseUnread(c, recorded(caller, why), f)
	return false
}

// Unread implements httpd.Handler.
func (h clientHandler) Unread(c httpd.Request, why httpd.Why) { h.g.unread(c, why) }

// Full implements httpd.Handler.
func (h clientHandler) Full() ([]httpd.Field, []byte) { return fullAnswer() }
