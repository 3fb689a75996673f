package gateway

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/internal/wire"
)

// unready is why no token can be made now, or "".
func (g *Gateway) unready() string {
	state := g.engine.State()
	age := time.Duration(wire.Monotonic() - state.At)
	switch {
	case g.draining.Load():
		return "draining: the server is stopping"
	case state.Err != nil:
		return "engine: " + state.Err.Message
	case age > g.cfg.Timeouts.HeartbeatLimit:
		return "engine: no progress for " + age.Round(time.Millisecond).String()
	}
	return ""
}

func (g *Gateway) healthz(c *fasthttp.RequestCtx) {
	writeJSON(c, fasthttp.StatusOK, []byte(`{"status":"ok"}`))
}

// readyz tells by its status code whether a first token can be made.
func (g *Gateway) readyz(c *fasthttp.RequestCtx) {
	if why := g.unready(); why != "" {
		c.Response.Header.Set("Retry-After", "1")
		writeJSON(c, fasthttp.StatusServiceUnavailable, append(appendString([]byte(`{"status":"unavailable","reason":`), why), '}'))
		return
	}
	writeJSON(c, fasthttp.StatusOK, []byte(`{"status":"ready"}`))
}

func (g *Gateway) serveVersion(c *fasthttp.RequestCtx) {
	writeJSON(c, fasthttp.StatusOK, append(appendString([]byte(`{"version":`), g.version), '}'))
}

// modelObject is OpenAI's model object with what clients ask others for.
type modelObject struct {
	ID           string `json:"id"`
	Object       string `json:"object"`
	Created      int64  `json:"created"`
	OwnedBy      string `json:"owned_by"`
	MaxModelLen  int    `json:"max_model_len"`
	Architecture string `json:"architecture,omitempty"`
	Quantisation string `json:"quantization,omitempty"`
	Parameters   int64  `json:"parameters,omitempty"`
}

// models are those that are served now: none while the engine has none.
func (g *Gateway) models() []modelObject {
	m := g.engine.State().Model
	if m.ID == "" {
		return []modelObject{}
	}
	return []modelObject{{m.ID, "model", m.CreatedUnix, "forebay", m.ContextTokens, m.Architecture, m.Quantisation, m.Parameters}}
}

func (g *Gateway) listModels(c *fasthttp.RequestCtx) {
	writeValue(c, map[string]any{"object": "list", "data": g.models()})
}

func (g *Gateway) oneModel(c *fasthttp.RequestCtx) {
	name := strings.TrimPrefix(string(c.URI().PathOriginal()), modelsPath)
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	for _, m := range g.models() {
		if m.ID == name {
			writeValue(c, m)
			return
		}
	}
	writeFailure(c, &failure{fault: faultModelNotFound, param: "model", message: "the model is not served here; GET /v1/models lists what is"})
}

// debugRequests lists the requests in flight, and the newest finished ones.
func (g *Gateway) debugRequests(c *fasthttp.RequestCtx) {
	type live struct {
		ID    string  `json:"id"`
		Route string  `json:"route"`
		Stage string  `json:"stage"`
		AgeMS float64 `json:"age_ms"`
	}
	type ended struct {
		ID      string  `json:"id"`
		Route   string  `json:"route"`
		Outcome string  `json:"outcome"`
		Status  int     `json:"status"`
		TotalMS float64 `json:"total_ms"`
	}
	page := struct {
		InFlight []live  `json:"in_flight"`
		Finished []ended `json:"finished"`
	}{[]live{}, []ended{}}
	g.mu.Lock()
	for x := range g.live {
		route := "completions"
		if x.chat {
			route = "chat_completions"
		}
		page.InFlight = append(page.InFlight, live{x.id, route, stageNames[x.stage.Load()], float64(time.Since(x.arrived).Microseconds()) / 1000})
	}
	g.mu.Unlock()
	for _, r := range g.recorder.Last(100) {
		page.Finished = append(page.Finished, ended{r.ID, r.Route, r.Outcome.String(), r.Status, float64(r.Finished-r.Arrived) / 1e6})
	}
	writeValue(c, page)
}

func writeValue(c *fasthttp.RequestCtx, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		writeFailure(c, asFailure(err))
		return
	}
	writeJSON(c, fasthttp.StatusOK, b)
}

func writeJSON(c *fasthttp.RequestCtx, status int, body []byte) {
	c.SetStatusCode(status)
	c.SetContentType("application/json")
	c.SetBody(body)
}

// writeFailure makes the response of a request that failed before it had one.
func writeFailure(c *fasthttp.RequestCtx, f *failure) {
	h := &c.Response.Header
	if len(h.Peek("X-Request-Id")) == 0 {
		h.Set("X-Request-Id", requestIDOf(c))
	}
	if wait, again, stated := f.retry(); again {
		wait = spread(wait)
		h.Set("Retry-After", secondsUp(wait))
		h.Set("Retry-After-Ms", milliseconds(wait))
		h.Set("X-Should-Retry", "true")
	} else if stated {
		h.Set("X-Should-Retry", "false")
	}
	if f.allow != "" {
		h.Set("Allow", f.allow)
	}
	switch f.fault {
	case faultDraining, faultBodyTooLarge, faultHeaderTooLarge, faultRequestTimeout:
		c.SetConnectionClose()
	case faultMediaType:
		h.Set("Accept-Encoding", "gzip")
	}
	writeJSON(c, faults[f.fault].status, f.appendErrorObject(nil))
}

func requestIDOf(c *fasthttp.RequestCtx) string {
	if id := saneID(c.Request.Header.Peek("X-Request-Id")); id != "" {
		return id
	}
	return newID()
}
