package gateway

import (
	"encoding/hex"
	"errors"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/internal/wire"
)

// debugPages are the operator's pages over what this gateway knows.
func (g *Gateway) debugPages() *debug.Pages {
	return &debug.Pages{Sources: debug.Sources{
		Engine: g.engine, Admission: g.admission, Kept: g.capture, Records: g.recorder.Last, Live: g.liveRequests, Version: g.version,
		LimiterDegraded: func() bool { return g.budget != nil && g.budget.Degraded() },
	}}
}

// serveDebug answers with one of pages.
func serveDebug(c *fasthttp.RequestCtx, pages *debug.Pages) *failure {
	query := url.Values{}
	for key, value := range c.QueryArgs().All() {
		query.Add(string(key), string(value))
	}
	a, err := pages.Get(string(c.URI().PathOriginal()), query)
	if err != nil {
		return debugFailure(err)
	}
	writeJSON(c, a.Status, a.Body)
	for name, value := range a.Header {
		c.Response.Header.Set(name, value)
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
			ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), Tenant: r.Tenant, Route: r.Route,
			Stage: stageNames[x.stage.Load()], StageMS: milliseconds(now - x.entered.Load()), AgeMS: milliseconds(now - r.Arrived),
		})
	}
	return all
}

// modes are what a class may be set to, by name.
var modes = map[string]admission.Mode{admission.Open.String(): admission.Open, admission.Paused.String(): admission.Paused, admission.Drained.String(): admission.Drained}

// setQueueMode opens, pauses or drains the class that the path names. A page of
// another site must not do this: the browser says which site sends a request.
func (g *Gateway) setQueueMode(c *fasthttp.RequestCtx) *failure {
	h := &c.Request.Header
	if site := string(h.Peek("Sec-Fetch-Site")); site != "" && site != "same-origin" && site != "none" || !new(cors).mayCall(h, c.LocalAddr()) {
		return failed(faultOrigin, "a page of another site may not change the queue")
	}
	mode, ok := modes[string(c.QueryArgs().Peek("mode"))]
	if !ok {
		return &failure{fault: faultInvalid, param: "mode", message: "mode must be one of open, paused, drained"}
	}
	class := strings.TrimPrefix(string(c.URI().PathOriginal()), debug.QueuePath+"/")
	if plain, err := url.PathUnescape(class); err == nil {
		class = plain
	}
	if err := g.admission.SetMode(class, mode); err != nil {
		return &failure{fault: faultClassNotFound, message: err.Error()}
	}
	g.log.Info("a class was set by the operator", "class", class, "mode", mode.String())
	if strings.Contains(string(h.Peek("Accept")), "text/html") {
		c.Response.Header.Set("Location", debug.QueuePath)
		c.SetStatusCode(fasthttp.StatusSeeOther)
		return nil
	}
	writeValue(c, map[string]string{"class": class, "mode": mode.String()})
	return nil
}
