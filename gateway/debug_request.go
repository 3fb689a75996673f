package gateway

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/spans"
)

// request answers GET /debug/requests/ID.
func (d *debugPages) request(c *fasthttp.RequestCtx) *failure {
	format, f := formatOf(c, "json", "perfetto", "otlp")
	if f != nil {
		return f
	}
	id := strings.TrimPrefix(string(c.URI().PathOriginal()), requestsPath+"/")
	if plain, err := url.PathUnescape(id); err == nil {
		id = plain
	}
	view, why := d.find(id)
	switch {
	case view == nil && format == "html":
		return writePage(c, fasthttp.StatusNotFound, "missing.html", struct{ ID, Why string }{clip(id, clientIDBytesMax), why})
	case view == nil:
		return failed(faultPathNotFound, why)
	case format == "json":
		writeValue(c, view)
		return nil
	case format == "perfetto":
		writeFile(c, view.ID+".perfetto.json", view.Trace())
		return nil
	case format == "otlp":
		trees := d.kept.Trees(view.ID, spans.Names141)
		if len(trees) == 0 {
			return failed(faultPathNotFound, "there are no spans of this request: another version of Forebay kept it, or requests are not kept here")
		}
		var b bytes.Buffer
		if err := spans.WriteOTLP(&b, d.g.version, "", spans.Names141, trees...); err != nil {
			return asFailure(err)
		}
		writeFile(c, view.ID+".otlp.json", b.Bytes())
		return nil
	}
	return writePage(c, fasthttp.StatusOK, "request.html", newWaterfall(view))
}

// writeFile answers with JSON that a browser saves under the name.
func writeFile(c *fasthttp.RequestCtx, name string, text []byte) {
	writeJSON(c, fasthttp.StatusOK, text)
	c.Response.Header.Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// idBytesLeast is how much of an id finds a request.
const idBytesLeast = 6

// find is the request that was kept, or runs; or why it can not be shown, and
// what to do about it.
func (d *debugPages) find(id string) (view *capture.View, why string) {
	if v := d.kept.Find(id); v != nil {
		return v, ""
	}
	for _, r := range d.g.liveRequests() {
		if sameRequest(id, r.ID, r.ClientID, r.TraceID) {
			if v := d.kept.Find(r.ID); v != nil {
				return v, ""
			}
			return liveView(&r), ""
		}
	}
	for _, v := range d.kept.List(capture.Filter{}) {
		if sameRequest(id, v.ID, v.ClientID, v.TraceID) {
			if whole := d.kept.Find(v.ID); whole != nil { // a list has no steps
				return whole, ""
			}
		}
	}
	const force = "To keep the next one, send it with the header x-forebay-capture: 1."
	records := d.g.recorder.Last(debugRecordsMax)
	for i := range records {
		r := &records[i]
		if sameRequest(id, r.ID, r.ClientID, hex.EncodeToString(r.Trace.TraceID[:])) {
			return nil, fmt.Sprintf("Request %s ended as %s after %s and was not kept: it met its goals and nothing was wrong with it, or too many like it were kept before. %s",
				r.ID, r.Outcome, shortTime(milliseconds(r.Finished-r.Arrived)), force)
		}
	}
	if len(id) < idBytesLeast {
		return nil, fmt.Sprintf("No request is named %q. At least the first %d characters of an id are needed: the request's own, the client's x-request-id, or the trace id.", id, idBytesLeast)
	}
	return nil, fmt.Sprintf("No request is named %q. It is not of this Forebay, or so long ago that it was dropped, or it was not kept and its record was written over; the log has a line for each request. %s", clip(id, clientIDBytesMax), force)
}

// sameRequest tells whether id is one of a request's names or the beginning of one.
func sameRequest(id string, names ...string) bool {
	for _, name := range names {
		if name != "" && (name == id || len(id) >= idBytesLeast && strings.HasPrefix(name, id)) {
			return true
		}
	}
	return false
}

// liveView is what is known of a request before it ends.
func liveView(r *RequestLive) *capture.View {
	v := &capture.View{
		ID: r.ID, ClientID: r.ClientID, TraceID: r.TraceID, Arrived: time.Now().Add(-time.Duration(r.AgeMS * float64(time.Millisecond))), Running: true,
		Tenant: r.Tenant, Class: r.Class, Route: r.Route, WallMS: r.AgeMS, CompletionTokens: r.Tokens,
		Reasons: []string{}, Stall: []capture.StallView{}, Steps: []capture.StepView{}, Kernels: []capture.KernelView{}, Neighbours: []capture.NeighbourView{},
		Sentence: fmt.Sprintf("It still runs: %s for %s, %s since it arrived.", r.Stage, shortTime(r.StageMS), shortTime(r.AgeMS)),
	}
	stage := min(r.StageMS, r.AgeMS)
	if r.AgeMS > stage {
		v.Parts = append(v.Parts, capture.PartView{Name: "before", MS: r.AgeMS - stage})
	}
	v.Parts = append(v.Parts, capture.PartView{Name: r.Stage, BeginMS: r.AgeMS - stage, MS: stage})
	return v
}
