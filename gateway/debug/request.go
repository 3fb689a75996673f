package debug

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/spans"
)

// request answers GET /debug/requests/ID; id is escaped as in a path.
func (p *Pages) request(id string, query url.Values) (*Answer, error) {
	format, err := formatOf(query, "json", "perfetto", "otlp")
	if err != nil {
		return nil, err
	}
	if plain, err := url.PathUnescape(id); err == nil {
		id = plain
	}
	view, err := p.find(id)
	switch {
	case format == "html":
		return shell(err)
	case err != nil:
		return nil, err
	case format == "json":
		return asJSON(view)
	case format == "perfetto":
		return asFile(view.ID+".perfetto.json", view.Trace()), nil
	}
	trees := p.Kept.Trees(view.ID, spans.Names141)
	if len(trees) == 0 {
		return nil, missing("There are no spans of this request: it was not kept, or by another version of Forebay. To keep the next one, send it with the header x-forebay-capture: 1.")
	}
	var b bytes.Buffer
	err = spans.WriteOTLP(&b, p.Version, "", spans.Names141, trees...)
	return asFile(view.ID+".otlp.json", b.Bytes()), err
}

const (
	idBytesMin   = 6   // how much of an id finds a request
	nameBytesMax = 128 // of a name that an error text repeats
)

// find returns the request that was kept or runs. The *Refusal says why it cannot
// be shown, and what to do about it.
func (p *Pages) find(id string) (*capture.View, error) {
	if v := p.Kept.Find(id); v != nil {
		return v, nil
	}
	for _, r := range p.live() {
		if sameRequest(id, r.ID, r.ClientID, r.TraceID) {
			if v := p.Kept.Find(r.ID); v != nil {
				return v, nil
			}
			return liveView(&r), nil
		}
	}
	for _, v := range p.Kept.List() {
		if sameRequest(id, v.ID, v.ClientID, v.TraceID) {
			if whole := p.Kept.Find(v.ID); whole != nil { // a list has no steps
				return whole, nil
			}
		}
	}
	const force = "To keep the next one, send it with the header x-forebay-capture: 1."
	records := p.Records(recordsMax)
	for i := range records {
		r := &records[i]
		if sameRequest(id, r.ID, r.ClientID, hex.EncodeToString(r.Trace.TraceID[:])) {
			if v := p.Kept.Explain(r); v != nil {
				return v, nil
			}
			return nil, missing("Request %s ended as %s after %s and was not kept: it met its goals and nothing was wrong with it, or too many like it were kept before. %s",
				r.ID, r.Outcome, shortTime(milliseconds(r.Finished-r.Arrived)), force)
		}
	}
	if len(id) < idBytesMin {
		return nil, missing("No request is named %q. At least the first %d characters of an id are needed: the request's own id, the client's x-request-id, or the trace id.", id, idBytesMin)
	}
	return nil, missing("No request is named %q. It went to another Forebay, or it is too old, or it was not kept and its record is overwritten. The log has a line for each request. %s",
		id[:min(len(id), nameBytesMax)], force)
}

func missing(format string, args ...any) *Refusal {
	return &Refusal{Kind: NotFound, Message: fmt.Sprintf(format, args...)}
}

// sameRequest tells whether id is a name of a request, or the beginning of one.
func sameRequest(id string, names ...string) bool {
	for _, name := range names {
		if name != "" && (name == id || len(id) >= idBytesMin && strings.HasPrefix(name, id)) {
			return true
		}
	}
	return false
}

// liveView is what is known of a running request that Kept does not know.
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

// shortTime is a time in milliseconds in the unit that reads best.
func shortTime(ms float64) string {
	switch {
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	case ms < 120e3:
		return fmt.Sprintf("%.1f s", ms/1e3)
	}
	return fmt.Sprintf("%.0f min", ms/60e3)
}
