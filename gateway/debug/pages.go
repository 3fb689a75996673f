package debug

import (
	"embed"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// Paths of the pages. RequestsPath + "/ID" is the page of one request.
const (
	RequestsPath = "/debug/requests"
	StepsPath    = "/debug/steps"
	QueuePath    = "/debug/queue"
	// UpstreamsPath takes orders for the upstreams that are on the queue's page.
	UpstreamsPath = "/debug/upstreams"
	BudgetsPath   = "/debug/budgets"
	CachePath     = "/debug/cache"
	LaunchesPath  = "/debug/launches" // a file, not a page
	assetsPath    = "/debug/assets/"
)

// Paths are what a message about an unknown path lists.
var Paths = []string{RequestsPath, StepsPath, LaunchesPath, QueuePath, BudgetsPath, CachePath}

// Sources are what the pages read. All may be called from any goroutine.
type Sources struct {
	Engine    wire.Engine // a wire.LaunchTracer too, if it can record launches
	Admission admission.Controller
	Kept      Kept
	// Records returns up to n of the newest finished records, newest first.
	Records func(n int) []telemetry.Record
	// Live returns the requests in flight, in any order. Class and Tokens are
	// filled in from Admission.
	Live func() []RequestLive
	// Budgets returns what holders of limits have used, of one tenant, or "" for all.
	Budgets func(tenant string) *BudgetsPage
	// LimiterDegraded says that the shared store of budgets does not answer.
	LimiterDegraded func() bool
	Siblings        *siblings.Group // nil without
	Version         string          // of this program, for exported spans
}

// Kept are the requests that were kept. What it returns must not be changed.
type Kept interface {
	// Find returns the newest request, kept or running, with that id, client's
	// id or trace id; nil for none.
	Find(name string) *capture.View
	// Trees returns the spans of the request that Find returns; nil for none.
	Trees(name string, names spans.Names) []spans.Tree
	// Explain returns what is still known of a request that has ended and was not
	// kept, by its record, which it owns; nil where requests are not kept at all.
	Explain(r *telemetry.Record) *capture.View
	// List returns the kept requests, newest first, without their steps.
	List() []*capture.View
	// Launches returns the file of the launches recorded after the request of
	// that id, or the last file for ""; nil for none.
	Launches(id string) []byte
}

// Pages answers the operator's requests.
type Pages struct{ Sources }

// Answer is a page or a file.
type Answer struct {
	Status int // of HTTP
	Header map[string]string
	Body   []byte
}

// Refusal says why there is no answer.
type Refusal struct {
	Kind    RefusalKind
	Param   string // of the query, or ""
	Message string
}

// RefusalKind is one of a closed list.
type RefusalKind uint8

// The kinds of refusals.
const (
	Invalid     RefusalKind = iota // a parameter of the query
	NotFound                       // no such page, request or file
	Unavailable                    // the engine cannot do it
)

func (r *Refusal) Error() string { return r.Message }

// Get answers GET path?query. An error is a *Refusal, or from the engine.
func (p *Pages) Get(path string, query url.Values) (*Answer, error) {
	if name, ok := strings.CutPrefix(path, assetsPath); ok {
		return asset(name)
	}
	if id, ok := strings.CutPrefix(path, RequestsPath+"/"); ok {
		return p.request(id, query)
	}
	switch path {
	case RequestsPath:
		return p.requests(query)
	case StepsPath:
		return page(query, stepsPage(p.Engine.State(), wire.Monotonic()))
	case QueuePath:
		return page(query, p.queuePage())
	case BudgetsPath:
		if format, err := formatOf(query, "json"); err != nil || format == "html" {
			return page(query, nil) // and ask no shared store
		}
		return page(query, p.Budgets(query.Get("tenant")))
	case CachePath:
		return page(query, p.cachePage())
	case LaunchesPath:
		return p.launches(query)
	}
	return nil, &Refusal{Kind: NotFound, Message: "the debug pages are " + strings.Join(Paths, ", ")}
}

//go:embed assets
var assets embed.FS

// policy allows the files of this package, requests and forms that lead back
// here, and the empty icon. A script cannot turn a string into markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// answer is a whole answer with body, which no cache keeps.
func answer(mediaType string, body []byte) *Answer {
	return &Answer{http.StatusOK, map[string]string{"Content-Type": mediaType, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}, body}
}

// asset answers with a file of assets/. With the stricter Referrer-Policy
// no-referrer a browser sends the queue's buttons with Origin: null, which the
// gateway refuses.
func asset(name string) (*Answer, error) {
	body, err := assets.ReadFile("assets/" + name)
	if err != nil {
		return nil, &Refusal{Kind: NotFound, Message: "the debug pages have no such file"}
	}
	a := answer(types[path.Ext(name)], body)
	a.Header["Content-Security-Policy"], a.Header["Referrer-Policy"] = policy, "same-origin"
	return a, nil
}

// types are the media types of the assets. Package mime would ask the machine's
// files.
var types = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

// shell answers with the page that shows any of the pages' JSON, under the
// status that the JSON has.
func shell(err error) (*Answer, error) {
	a, missing := asset("page.html")
	var refusal *Refusal
	if missing == nil && errors.As(err, &refusal) {
		a.Status = [...]int{Invalid: http.StatusBadRequest, NotFound: http.StatusNotFound, Unavailable: http.StatusServiceUnavailable}[refusal.Kind]
	}
	return a, missing
}

// page answers with value, as JSON or on a page.
func page(query url.Values, value any) (*Answer, error) {
	switch format, err := formatOf(query, "json"); {
	case err != nil:
		return nil, err
	case format == "html":
		return shell(nil)
	}
	return asJSON(value)
}

// formatOf returns the format that the query asks for: html or one of others.
func formatOf(query url.Values, others ...string) (string, error) {
	format := query.Get("format")
	if format == "" || format == "html" {
		return "html", nil
	}
	for _, other := range others {
		if format == other {
			return format, nil
		}
	}
	return "", &Refusal{Invalid, "format", "format must be html or " + strings.Join(others, " or ")}
}

func asJSON(value any) (*Answer, error) {
	body, err := json.Marshal(value)
	return answer("application/json", body), err
}

// asFile answers with JSON that a browser saves under the name.
func asFile(name string, body []byte) *Answer {
	a := answer("application/json", body)
	a.Header["Content-Disposition"] = `attachment; filename="` + name + `"`
	return a
}

// milliseconds is ns to the microsecond.
func milliseconds(ns int64) float64 { return float64(ns/int64(time.Microsecond)) / 1000 }
