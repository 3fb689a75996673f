package gateway

import (
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/internal/wire"
)

// adminPages are the operator's pages, which leave no records.
type adminPages struct {
	g      *Gateway
	routes []route // of one path
	below  []route // of all paths that begin with theirs, the first that fits
}

func (g *Gateway) newAdminPages() *adminPages {
	const get = "GET, HEAD"
	page := func(handler func(httpd.Request)) func(httpd.Request) *failure {
		return func(c httpd.Request) *failure {
			handler(c)
			return nil
		}
	}
	pages := g.debugPages()
	return &adminPages{
		g: g,
		routes: []route{
			{path: "/metrics", methods: get, serve: page(httpd.Adapt(g.recorder.MetricsPage()))},
			{path: "/healthz", methods: get, serve: g.healthz},
			{path: "/readyz", methods: get, serve: g.readyz},
			{path: "/version", methods: get, serve: g.serveVersion},
			{path: debug.UpstreamsPath, methods: "POST", serve: g.setUpstreamMode},
		},
		below: []route{
			{path: profilesPath, methods: get + ", POST", serve: page(httpd.Profiles)},
			{path: debug.QueuePath + "/", methods: "POST", serve: g.setQueueMode},
			{path: "/debug/", methods: get, serve: func(c httpd.Request) *failure { return serveDebug(c, pages) }},
		},
	}
}

const profilesPath = "/debug/pprof/"

func (p *adminPages) find(path string) *route {
	for i := range p.routes {
		if p.routes[i].path == path {
			return &p.routes[i]
		}
	}
	for i := range p.below {
		if strings.HasPrefix(path, p.below[i].path) {
			return &p.below[i]
		}
	}
	return nil
}

// Serve implements httpd.Handler.
func (p *adminPages) Serve(c httpd.Request) {
	var f *failure
	switch r := p.find(c.Path()); {
	case r == nil:
		f = failed(faultPathNotFound, "the pages here are /metrics, /healthz, /readyz, /version, "+strings.Join(debug.Paths, ", ")+" and "+profilesPath)
	case !hasMethod(r.methods, c.Method()):
		f = errMethod(r.methods)
	default:
		f = r.serve(c)
	}
	if f != nil {
		writeFailure(c, f)
	}
}

// Expect implements httpd.Handler: no page takes a body.
func (p *adminPages) Expect(c httpd.Request) (proceed bool) {
	writeFailure(c, failed(faultExpectation, "the pages here take no body"))
	return false
}

// Unread implements httpd.Handler. A request that cannot be read is recorded here too.
func (p *adminPages) Unread(c httpd.Request, why httpd.Why) { p.g.unread(c, why) }

// Full implements httpd.Handler.
func (p *adminPages) Full() ([]httpd.Field, []byte) { return fullAnswer() }

// debugPages are the operator's pages over what this gateway knows.
func (g *Gateway) debugPages() *debug.Pages {
	return &debug.Pages{Sources: debug.Sources{
		Engine: g.engine, Admission: g.admission, Kept: g.capture, Records: g.recorder.Last, Live: g.liveRequests, Version: g.version,
		Budgets:         g.budgetsPage,
		LimiterDegraded: func() bool { return g.budget != nil && g.budget.Degraded() },
		Siblings:        g.siblings,
	}}
}

// serveDebug answers with one of pages.
func serveDebug(c httpd.Request, pages *debug.Pages) *failure {
	a, err := pages.Get(c.Path(), c.Query())
	if err != nil {
		return debugFailure(err)
	}
	writeJSON(c, a.Status, a.Body)
	for name, value := range a.Header {
		c.SetHeader(name, value)
	}
	return nil
}

var faultOfRefusal = map[debug.RefusalKind]fault{debug.Invalid: faultInvalid, debug.NotFound: faultPathNotFound, debug.Unavailable: faultUnavailable}

func debugFailure(err error) *failure {
	var refusal *debug.Refusal
	if !errors.As(err, &refusal) {
		return asFailure(err)
	}
	return &failure{fault: faultOfRefusal[refusal.Kind], param: refusal.Param, message: refusal.Message}
}

// liveRequests returns the requests in flight, in no order.
func (g *Gateway) liveRequests() []debug.RequestLive {
	now := wire.Monotonic()
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]debug.RequestLive, 0, len(g.live))
	for x := range g.live {
		r := &x.record
		all = append(all, debug.RequestLive{
			ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), Tenant: r.Tenant, Key: r.Key, Route: r.Route,
			Stage: stageNames[x.stage.Load()], StageMS: milliseconds(now - x.entered.Load()), AgeMS: milliseconds(now - r.Arrived),
		})
	}
	return all
}

// modes are what a class may be set to, by name.
var modes = map[string]admission.Mode{admission.Open.String(): admission.Open, admission.Paused.String(): admission.Paused, admission.Drained.String(): admission.Drained}

// setQueueMode opens, pauses or drains the class that the path names. A page of
// another site must not do this: the browser says which site sends a request.
func (g *Gateway) setQueueMode(c httpd.Request) *failure {
	if fromElsewhere(c) {
		return failed(faultOrigin, "a page of another site may not change the queue")
	}
	mode, ok := modes[c.Query().Get("mode")]
	if !ok {
		return &failure{fault: faultInvalid, param: "mode", message: "mode must be one of open, paused, drained"}
	}
	class := strings.TrimPrefix(c.Path(), debug.QueuePath+"/")
	if plain, err := url.PathUnescape(class); err == nil {
		class = plain
	}
	if err := g.admission.SetMode(class, mode); err != nil {
		return &failure{fault: faultClassNotFound, message: err.Error()}
	}
	g.log.Info("a class was set by the operator", "class", class, "mode", mode.String())
	return backToQueue(c, map[string]string{"class": class, "mode": mode.String()})
}

// fromElsewhere tells that a page of another site sends the request.
func fromElsewhere(c httpd.Request) bool {
	site := string(c.Header("Sec-Fetch-Site"))
	return site != "" && site != "same-origin" && site != "none" || !new(cors).mayCall(c)
}

// backToQueue answers a button of the queue's page with that page, and a program with
// what was set.
func backToQueue(c httpd.Request, set map[string]string) *failure {
	if strings.Contains(string(c.Header("Accept")), "text/html") {
		c.SetHeader("Location", debug.QueuePath)
		c.AnswerEmpty(http.StatusSeeOther)
		return nil
	}
	writeValue(c, set)
	return nil
}

// setUpstreamMode drains the server that is relayed to and that the query names, or
// opens it again.
func (g *Gateway) setUpstreamMode(c httpd.Request) *failure {
	if fromElsewhere(c) {
		return failed(faultOrigin, "a page of another site may not change the upstreams")
	}
	relay, ok := g.engine.(wire.Upstreams)
	if !ok {
		return failed(faultPathNotFound, "this gateway has an engine of its own, and no upstreams")
	}
	name, mode := c.Query().Get("upstream"), c.Query().Get("mode")
	if mode != "open" && mode != "drained" {
		return &failure{fault: faultInvalid, param: "mode", message: "mode must be one of open, drained"}
	}
	if err := relay.DrainUpstream(name, mode == "drained"); err != nil {
		return asFailure(err)
	}
	g.log.Info("an upstream was set by the operator", "upstream", name, "mode", mode)
	return backToQueue(c, map[string]string{"upstream": name, "mode": mode})
}
