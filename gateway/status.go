package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/internal/wire"
)

// unready says why no token can be generated now, or "".
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

func (g *Gateway) healthz(c httpd.Request) *failure {
	writeJSON(c, http.StatusOK, []byte(`{"status":"ok"}`))
	return nil
}

// readyz tells by its status whether tokens can be generated.
func (g *Gateway) readyz(c httpd.Request) *failure {
	why := g.unready()
	if why == "" {
		writeJSON(c, http.StatusOK, append(g.appendPolicy([]byte(`{"status":"ready"`)), '}'))
		return nil
	}
	wait := retryAfterDefault
	if err := g.engine.State().Err; err != nil && err.RetryAfter > wait {
		wait = err.RetryAfter
	}
	c.SetHeader("Retry-After", secondsUp(wait))
	writeJSON(c, http.StatusServiceUnavailable, append(g.appendPolicy(appendString([]byte(`{"status":"unavailable","reason":`), why)), '}'))
	return nil
}

// appendPolicy says where the policy comes from and how old it is, where a control
// plane gives it.
func (g *Gateway) appendPolicy(b []byte) []byte {
	if g.policy == nil {
		return b
	}
	return append(append(b, `,"policy":`...), g.policy()...)
}

func (g *Gateway) serveVersion(c httpd.Request) *failure {
	b := appendString([]byte(`{"version":`), g.version)
	if m := g.engine.State().Model; m.Device != "" {
		b = appendString(append(b, `,"device":`...), m.Device)
		b = appendString(append(b, `,"kernels":`...), m.Kernels)
	}
	writeJSON(c, http.StatusOK, append(b, '}'))
	return nil
}

// modelObject is OpenAI's model object with the fields that other servers add.
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

// models are those that are served; it fails where there is none.
func (g *Gateway) models() (all []modelObject, f *failure) {
	for _, s := range g.states() {
		if m := &s.Model; s.Err == nil {
			all = append(all, modelObject{m.ID, "model", m.CreatedUnix, "forebay", m.ContextTokens, m.Architecture, m.Quantisation, m.Parameters})
		} else if f == nil {
			f = g.failureOf(s.Err)
		}
	}
	if len(all) > 0 {
		f = nil
	}
	return all, f
}

// listModels lists what the caller may use.
func (g *Gateway) listModels(c httpd.Request, caller *identity.Caller) *failure {
	list, f := g.models()
	if f != nil {
		return f
	}
	list = slices.DeleteFunc(list, func(m modelObject) bool { return !caller.MayModel(m.ID) })
	writeValue(c, map[string]any{"object": "list", "data": list})
	return nil
}

func (g *Gateway) oneModel(c httpd.Request, caller *identity.Caller) *failure {
	name := strings.TrimPrefix(c.Path(), modelsPath)
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	all, f := g.models()
	at := slices.IndexFunc(all, func(m modelObject) bool { return m.ID == name })
	switch {
	case f != nil:
		return f
	case at < 0:
		return errModelNotFound(name)
	case !caller.MayModel(name):
		return errModelForbidden()
	}
	writeValue(c, all[at])
	return nil
}

const modelNameBytesMax = 64

func errModelNotFound(name string) *failure {
	quoted := strconv.QuoteToASCII(clip(name, modelNameBytesMax))
	return &failure{fault: faultModelNotFound, param: "model", message: "the model " + quoted + " is not served here; GET /v1/models lists what is", detail: quoted}
}

func errModelForbidden() *failure {
	return &failure{fault: faultForbidden, param: "model", message: "this API key may not use this model"}
}

// milliseconds is ns to the microsecond.
func milliseconds(ns int64) float64 { return float64(ns/1000) / 1000 }

func writeValue(c httpd.Request, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		writeFailure(c, asFailure(err))
		return
	}
	writeJSON(c, http.StatusOK, b)
}

// writeJSON answers with body. It adds a request id if there is none yet.
func writeJSON(c httpd.Request, status int, body []byte) {
	if !c.HasHeader(requestIDHeader) {
		c.SetHeader(requestIDHeader, cmp.Or(saneID(c.Header(requestIDHeader)), newID()))
	}
	c.Answer(status, "application/json", body)
}

// writeFailure answers with f.
func writeFailure(c httpd.Request, f *failure) {
	wait, should := f.retry()
	if wait > 0 {
		ms := int64((wait + time.Millisecond - 1) / time.Millisecond) // up, so that a client that waits this long finds room
		c.SetHeader("Retry-After", secondsUp(time.Duration(ms)*time.Millisecond))
		c.SetHeader("Retry-After-Ms", strconv.FormatInt(ms, 10))
	}
	if should != "" {
		c.SetHeader("X-Should-Retry", should)
	}
	if f.predicted > 0 {
		c.SetHeader(predictedHeader, strconv.FormatInt(f.predicted.Milliseconds(), 10))
	}
	if f.allow != "" {
		c.SetHeader("Allow", f.allow)
	}
	switch f.fault {
	case faultDraining, faultBodyTooLarge, faultHeaderTooLarge, faultRequestTimeout:
		c.CloseAfter()
	case faultMediaType:
		c.SetHeader("Accept-Encoding", "gzip")
	case faultUnauthorized:
		c.SetHeader("Www-Authenticate", "Bearer")
	}
	body := f.appendErrorObject(nil)
	if strings.HasPrefix(c.Path(), messagesPath) {
		body = f.appendMessagesError(nil)
	}
	writeJSON(c, faults[f.fault].status, body)
}
