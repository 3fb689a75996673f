package gateway

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
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

func (g *Gateway) healthz(c *fasthttp.RequestCtx) *failure {
	writeJSON(c, fasthttp.StatusOK, []byte(`{"status":"ok"}`))
	return nil
}

// readyz tells by its status code whether a first token can be made.
func (g *Gateway) readyz(c *fasthttp.RequestCtx) *failure {
	why := g.unready()
	if why == "" {
		writeJSON(c, fasthttp.StatusOK, []byte(`{"status":"ready"}`))
		return nil
	}
	wait := retryAfterDefault
	if err := g.engine.State().Err; err != nil && err.RetryAfter > wait {
		wait = err.RetryAfter
	}
	c.Response.Header.Set("Retry-After", secondsUp(wait))
	writeJSON(c, fasthttp.StatusServiceUnavailable, append(appendString([]byte(`{"status":"unavailable","reason":`), why), '}'))
	return nil
}

func (g *Gateway) serveVersion(c *fasthttp.RequestCtx) *failure {
	writeJSON(c, fasthttp.StatusOK, append(appendString([]byte(`{"version":`), g.version), '}'))
	return nil
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

// model is the one that is served, which takes an engine.
func (g *Gateway) model() (modelObject, *failure) {
	state := g.engine.State()
	if state.Err != nil {
		return modelObject{}, g.failureOf(state.Err)
	}
	m := &state.Model
	return modelObject{m.ID, "model", m.CreatedUnix, "forebay", m.ContextTokens, m.Architecture, m.Quantisation, m.Parameters}, nil
}

func (g *Gateway) listModels(c *fasthttp.RequestCtx) *failure {
	m, f := g.model()
	if f == nil {
		writeValue(c, map[string]any{"object": "list", "data": []modelObject{m}})
	}
	return f
}

func (g *Gateway) oneModel(c *fasthttp.RequestCtx) *failure {
	name := strings.TrimPrefix(string(c.URI().PathOriginal()), modelsPath)
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	m, f := g.model()
	switch {
	case f != nil:
		return f
	case m.ID != name:
		return errModelNotFound(name)
	}
	writeValue(c, m)
	return nil
}

const modelNameBytesMax = 64

func errModelNotFound(name string) *failure {
	quoted := strconv.QuoteToASCII(clip(name, modelNameBytesMax))
	return &failure{fault: faultModelNotFound, param: "model", message: "the model " + quoted + " is not served here; GET /v1/models lists what is", detail: quoted}
}

// liveRow and endedRow are the lines of the debug page. A client knows its
// request by client_id where it sent one, and by id otherwise.
type liveRow struct {
	ID       string  `json:"id"`
	ClientID string  `json:"client_id,omitempty"`
	TraceID  string  `json:"trace_id"`
	Route    string  `json:"route"`
	Stage    string  `json:"stage"`
	StageMS  float64 `json:"stage_ms"`
	AgeMS    float64 `json:"age_ms"`
}

type endedRow struct {
	ID               string  `json:"id"`
	ClientID         string  `json:"client_id,omitempty"`
	TraceID          string  `json:"trace_id"`
	Route            string  `json:"route"`
	Outcome          string  `json:"outcome"`
	Error            string  `json:"error,omitempty"`
	Status           int     `json:"status"`
	AgoMS            float64 `json:"ago_ms"`
	TotalMS          float64 `json:"total_ms"`
	QueueMS          float64 `json:"queue_ms"`
	FirstTokenMS     float64 `json:"first_token_ms"`
	PromptTokens     int     `json:"prompt_tokens"`
	CachedTokens     int     `json:"cached_tokens"`
	CompletionTokens int     `json:"completion_tokens"`
}

const debugEndedMax = 100

// debugRequests lists the requests in flight, the oldest first, and the last
// finished ones, the newest first.
func (g *Gateway) debugRequests(c *fasthttp.RequestCtx) {
	now := wire.Monotonic()
	since := func(at int64) float64 { return milliseconds(now - at) }
	page := struct {
		InFlight []liveRow  `json:"in_flight"`
		Finished []endedRow `json:"finished"`
	}{[]liveRow{}, []endedRow{}}
	g.mu.Lock()
	for x := range g.live {
		r := &x.record
		page.InFlight = append(page.InFlight, liveRow{r.ID, r.ClientID, hex.EncodeToString(r.Trace.TraceID[:]), r.Route, stageNames[x.stage.Load()], since(x.entered.Load()), since(r.Arrived)})
	}
	g.mu.Unlock()
	slices.SortFunc(page.InFlight, func(a, b liveRow) int { return cmp.Compare(b.AgeMS, a.AgeMS) })
	for _, r := range g.recorder.Last(debugEndedMax) {
		row := endedRow{
			ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), Route: r.Route,
			Outcome: r.Outcome.String(), Error: r.ErrorKind, Status: r.Status,
			AgoMS: since(r.Finished), TotalMS: milliseconds(r.Finished - r.Arrived), FirstTokenMS: milliseconds(r.FirstTokenDelay()),
			PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, CompletionTokens: r.CompletionTokens,
		}
		if r.Admitted != 0 {
			row.QueueMS = milliseconds(r.Admitted - r.Prepared)
		}
		page.Finished = append(page.Finished, row)
	}
	writeValue(c, page)
}

// milliseconds is ns to the microsecond.
func milliseconds(ns int64) float64 { return float64(ns/1000) / 1000 }

func writeValue(c *fasthttp.RequestCtx, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		writeFailure(c, asFailure(err))
		return
	}
	writeJSON(c, fasthttp.StatusOK, b)
}

// writeJSON answers with body, under a request id where none was given yet.
func writeJSON(c *fasthttp.RequestCtx, status int, body []byte) {
	if h := &c.Response.Header; len(h.Peek(requestIDHeader)) == 0 {
		id := saneID(c.Request.Header.Peek(requestIDHeader))
		if id == "" {
			id = newID()
		}
		h.Set(requestIDHeader, id)
	}
	c.SetStatusCode(status)
	c.SetContentType("application/json")
	c.SetBody(body)
}

// writeFailure makes the response of a request that failed before it had one.
func writeFailure(c *fasthttp.RequestCtx, f *failure) {
	h := &c.Response.Header
	wait, should := f.retry()
	if wait > 0 {
		ms := int64((wait + time.Millisecond - 1) / time.Millisecond) // up, so that who waits it out finds room
		h.Set("Retry-After", secondsUp(time.Duration(ms)*time.Millisecond))
		h.Set("Retry-After-Ms", strconv.FormatInt(ms, 10))
	}
	if should != "" {
		h.Set("X-Should-Retry", should)
	}
	if f.predicted > 0 {
		h.Set(predictedHeader, strconv.FormatInt(f.predicted.Milliseconds(), 10))
	}
	if f.allow != "" {
		h.Set("Allow", f.allow)
	}
	switch f.fault {
	case faultDraining, faultBodyTooLarge, faultHeaderTooLarge, faultRequestTimeout:
		c.SetConnectionClose()
	case faultMediaType:
		h.Set("Accept-Encoding", "gzip")
	case faultUnauthorized:
		h.Set("Www-Authenticate", "Bearer")
	}
	writeJSON(c, faults[f.fault].status, f.appendErrorObject(nil))
}
