package gateway

import (
	"encoding/json"
	"net/url"
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
