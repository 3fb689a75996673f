package gateway

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	"github.com/valyala/fasthttp/pprofhandler"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// route is one path and what may be done with it.
type route struct {
	path    string
	methods string // as in Allow, without OPTIONS
	name    string // in records
	kind    routeKind
	open    bool // needs no key
	// serve answers, or says why not.
	serve func(*fasthttp.RequestCtx) *failure
	chat  bool // of generateRoute, which has no serve
}

type routeKind uint8

const (
	plainRoute    routeKind = iota // one record for each request
	probeRoute                     // no record for an answer, only for a refusal
	generateRoute                  // takes JSON; generate keeps the record
)

func (g *Gateway) clientRoutes() []route {
	const get = "GET, HEAD"
	return []route{
		{path: "/v1/chat/completions", methods: "POST", name: "chat_completions", kind: generateRoute, chat: true},
		{path: "/v1/completions", methods: "POST", name: "completions", kind: generateRoute},
		{path: "/v1/models", methods: get, name: "models", serve: g.listModels},
		{path: "/healthz", methods: get, name: "probe", kind: probeRoute, open: true, serve: g.healthz},
		{path: "/readyz", methods: get, name: "probe", kind: probeRoute, open: true, serve: g.readyz},
		{path: "/version", methods: get, name: "version", open: true, serve: g.serveVersion},
	}
}

const (
	modelsPath = "/v1/models/"
	maxPathLog = 64
)

// find gives the route of the path exactly as it was sent: no other spelling
// of a path is served, so none can slip past a rule. It is nil for no route.
func (g *Gateway) find(c *fasthttp.RequestCtx) *route {
	path := string(c.URI().PathOriginal())
	if strings.HasPrefix(path, modelsPath) && len(path) > len(modelsPath) {
		return &route{path: path, methods: "GET, HEAD", name: "model", serve: g.oneModel}
	}
	for i := range g.routes {
		if g.routes[i].path == path {
			return &g.routes[i]
		}
	}
	return nil
}

// handle is where every whole request comes in.
func (g *Gateway) handle(c *fasthttp.RequestCtx) {
	g.cors.setHeaders(&c.Response.Header, c.Request.Header.Peek("Origin"))
	r, tenant := g.find(c), g.tenantOf(&c.Request.Header)
	f := g.screen(c, r, tenant)
	switch {
	case f != nil && f.fault == faultTransferCoding:
		g.refuseUnread(c, f)
	case f != nil, r.kind == plainRoute, string(c.Method()) == fasthttp.MethodOptions:
		g.answer(c, r, tenant, f)
	case r.kind == generateRoute:
		g.generate(c, tenant, r.chat)
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

// answer serves what makes no text, or tells f, under one record.
func (g *Gateway) answer(c *fasthttp.RequestCtx, r *route, tenant *admission.Tenant, f *failure) {
	record := newRecord(&c.Request.Header, tenant, nameOf(r))
	c.Response.Header.Set(requestIDHeader, publicID(&record))
	switch {
	case f != nil:
	case string(c.Method()) == fasthttp.MethodOptions:
		g.cors.preflight(c, g.allow(r))
	default:
		f = r.serve(c)
	}
	record.Outcome, record.Status = telemetry.OK, c.Response.StatusCode()
	if f != nil {
		writeFailure(c, f)
		noteFailure(&record, f)
	}
	record.BytesIn, record.BytesOut = int64(len(c.Request.Body())), int64(len(c.Response.Body()))
	record.Finished = wire.Monotonic()
	g.recorder.Finish(&record)
}

// allow is what a route's methods are.
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

// screen refuses what the headers alone decide; it is nil for what may go on.
func (g *Gateway) screen(c *fasthttp.RequestCtx, r *route, tenant *admission.Tenant) *failure {
	h, method := &c.Request.Header, string(c.Method())
	switch {
	case hidesCoding(h):
		return errTransferCoding
	case expectsMore(h):
		return failed(faultExpectation, "the Expect header may only be 100-continue")
	case r == nil:
		path := clip(string(c.URI().PathOriginal()), maxPathLog)
		return &failure{fault: faultPathNotFound, message: "there is nothing at " + strings.ToValidUTF8(path, "?"), detail: strconv.QuoteToASCII(path)}
	case !hasMethod(g.allow(r), method):
		return errMethod(g.allow(r))
	case method == fasthttp.MethodOptions:
		return nil
	case r.kind != generateRoute:
		if r.open {
			return nil
		}
		return authenticate(h, tenant)
	case !g.cors.mayCall(h, c.LocalAddr()):
		return failed(faultOrigin, "browser pages of this Origin may not call here; gateway.cors_origins lists those that may")
	case !saysJSON(h):
		return failed(faultMediaType, "the Content-Type must be application/json")
	}
	return authenticate(h, tenant)
}

func errMethod(allow string) *failure {
	f := failed(faultMethod, "the method must be one of "+allow)
	if !strings.Contains(allow, ",") {
		f.message = "the method must be " + allow
	}
	f.allow = allow
	return f
}

// hidesCoding finds a Transfer-Encoding that fasthttp drops without a word,
// identity, after which the body would be read as the next request.
func hidesCoding(h *fasthttp.RequestHeader) bool {
	for line := range bytes.SplitSeq(h.RawHeaders(), []byte("\n")) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(key, []byte("Transfer-Encoding")) && !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
			return true
		}
	}
	return false
}

// expectsMore tells an expectation that nobody here can meet.
func expectsMore(h *fasthttp.RequestHeader) bool {
	for _, expectation := range h.PeekAll("Expect") {
		if !bytes.EqualFold(expectation, []byte("100-continue")) {
			return true
		}
	}
	return false
}

// adminHandler serves the operator's pages, which leave no records.
func (g *Gateway) adminHandler() fasthttp.RequestHandler {
	metrics := fasthttpadaptor.NewFastHTTPHandler(g.recorder.MetricsPage())
	page := func(handler fasthttp.RequestHandler) func(*fasthttp.RequestCtx) *failure {
		return func(c *fasthttp.RequestCtx) *failure {
			handler(c)
			return nil
		}
	}
	const get = "GET, HEAD"
	pages := g.debugPages()
	routes := []route{
		{path: "/metrics", methods: get, serve: page(metrics)},
		{path: "/healthz", methods: get, serve: g.healthz},
		{path: "/readyz", methods: get, serve: g.readyz},
		{path: "/version", methods: get, serve: g.serveVersion},
	}
	profiles := route{path: profilesPath, methods: get + ", POST", serve: page(pprofhandler.PprofHandler)}
	classes := route{path: debug.QueuePath + "/", methods: "POST", serve: g.setQueueMode}
	debugging := route{path: "/debug/", methods: get, serve: func(c *fasthttp.RequestCtx) *failure { return serveDebug(c, pages) }}
	find := func(path string) *route {
		switch {
		case strings.HasPrefix(path, profilesPath):
			return &profiles
		case strings.HasPrefix(path, classes.path):
			return &classes
		case strings.HasPrefix(path, debugging.path):
			return &debugging
		}
		for i := range routes {
			if routes[i].path == path {
				return &routes[i]
			}
		}
		return nil
	}
	return func(c *fasthttp.RequestCtx) {
		r := find(string(c.URI().PathOriginal()))
		var f *failure
		switch {
		case hidesCoding(&c.Request.Header):
			g.refuseUnread(c, errTransferCoding)
			return
		case r == nil:
			f = failed(faultPathNotFound, "the pages here are /metrics, /healthz, /readyz, /version, "+strings.Join(debug.Paths, ", ")+" and "+profilesPath)
		case !hasMethod(r.methods, string(c.Method())):
			f = errMethod(r.methods)
		default:
			f = r.serve(c)
		}
		if f != nil {
			writeFailure(c, f)
		}
	}
}

const profilesPath = "/debug/pprof/"

// expectNothing refuses Expect: 100-continue where no page takes a body.
func expectNothing(c *fasthttp.RequestCtx) int {
	f := failed(faultExpectation, "the pages here take no body")
	writeFailure(c, f)
	return faults[f.fault].status
}

// expect decides on Expect: 100-continue by the headers alone, so that a body
// which will be refused is never sent.
func (g *Gateway) expect(c *fasthttp.RequestCtx) int {
	r := g.find(c)
	f := g.screen(c, r, g.tenantOf(&c.Request.Header))
	switch {
	case f != nil:
	case c.Request.Header.ContentLength() > g.cfg.Limits.BodyBytesMax:
		f = errBodyTooLarge(g.cfg.Limits.BodyBytesMax)
	case g.draining.Load():
		f = errDraining
	default:
		return fasthttp.StatusContinue
	}
	g.refuseUnread(c, f)
	return faults[f.fault].status
}
