package gateway

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// RequestsPage lists requests, as GET /debug/requests?format=json gives them.
// A client knows its request by client_id where it sent one, and by id
// otherwise. Times are milliseconds.
type RequestsPage struct {
	InFlight []RequestLive  `json:"in_flight"` // the oldest first
	Slow     []RequestEnded `json:"slow"`      // they missed a goal, or were slow for their class
	Failed   []RequestEnded `json:"failed"`    // every outcome but ok
	Finished []RequestEnded `json:"finished"`  // those two and the others; all newest first
	Recent   Recent         `json:"recent"`
}

// RequestLive is a request that has not ended.
type RequestLive struct {
	ID       string  `json:"id"`
	ClientID string  `json:"client_id,omitempty"`
	TraceID  string  `json:"trace_id"`
	Tenant   string  `json:"tenant"`
	Class    string  `json:"class"` // "" before admission
	Route    string  `json:"route"`
	Stage    string  `json:"stage"`
	StageMS  float64 `json:"stage_ms"`
	AgeMS    float64 `json:"age_ms"`
	Tokens   int     `json:"tokens"`
}

// RequestEnded is a request that has ended.
type RequestEnded struct {
	ID               string   `json:"id"`
	ClientID         string   `json:"client_id,omitempty"`
	TraceID          string   `json:"trace_id"`
	Tenant           string   `json:"tenant"`
	Class            string   `json:"class"`
	Route            string   `json:"route"`
	Outcome          string   `json:"outcome"`
	Error            string   `json:"error,omitempty"`
	Status           int      `json:"status"`
	AgoMS            float64  `json:"ago_ms"`
	TotalMS          float64  `json:"total_ms"`
	QueueMS          float64  `json:"queue_ms"`
	FirstTokenMS     float64  `json:"first_token_ms"`
	PromptTokens     int      `json:"prompt_tokens"`
	CachedTokens     int      `json:"cached_tokens"`
	CompletionTokens int      `json:"completion_tokens"`
	Kept             bool     `json:"kept"`              // GET /debug/requests/ID tells more
	Reasons          []string `json:"reasons,omitempty"` // why it was kept
	Broken           []string `json:"broken,omitempty"`  // the goals that it missed
	Sentence         string   `json:"sentence,omitempty"`
}

// Recent sums up the generation requests that ended in the last minute, or in
// less where the records do not reach back so far.
type Recent struct {
	OverMS        float64 `json:"over_ms"`
	Finished      int     `json:"finished"`
	Failed        int     `json:"failed"`
	Tokens        int     `json:"completion_tokens"`
	FirstTokenP50 float64 `json:"first_token_p50_ms"` // 0 where none had one
	FirstTokenP99 float64 `json:"first_token_p99_ms"`
}

const (
	debugRecordsMax = 4096 // records that the page looks at
	debugRowsMax    = 100  // rows of a list
)

// requests answers GET /debug/requests.
func (d *debugPages) requests(c *fasthttp.RequestCtx) *failure {
	args := c.QueryArgs()
	if id := args.Peek("id"); len(id) > 0 { // of the search field
		c.Response.Header.Set("Location", requestPath(string(id)))
		c.SetStatusCode(fasthttp.StatusSeeOther)
		return nil
	}
	format, f := formatOf(c, "json")
	if f != nil {
		return f
	}
	filter, f := requestFilterOf(args)
	if f != nil {
		return f
	}
	page := d.requestsPage(filter)
	if format == "json" {
		writeValue(c, page)
		return nil
	}
	return writePage(c, fasthttp.StatusOK, "requests.html", struct {
		*RequestsPage
		Filter requestFilter
		JSON   string
	}{page, filter, "?" + filter.query().Encode()})
}

// requestFilter says which requests are listed; what is zero asks for nothing.
type requestFilter struct {
	Class, Tenant, Outcome, Reason string
	MinMS                          float64
}

func requestFilterOf(args *fasthttp.Args) (requestFilter, *failure) {
	text := func(key string) string { return string(args.Peek(key)) }
	w := requestFilter{Class: text("class"), Tenant: text("tenant"), Outcome: text("outcome"), Reason: text("reason")}
	if ms := text("min_ms"); ms != "" {
		var err error
		if w.MinMS, err = strconv.ParseFloat(ms, 64); err != nil || !(w.MinMS >= 0) {
			return w, &failure{fault: faultInvalid, param: "min_ms", message: "min_ms must be a number of milliseconds, such as 500"}
		}
	}
	return w, nil
}

// query is the filter as it came, for the link to the same page as JSON.
func (w requestFilter) query() url.Values {
	q := url.Values{"format": {"json"}}
	for key, value := range map[string]string{"class": w.Class, "tenant": w.Tenant, "outcome": w.Outcome, "reason": w.Reason} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if w.MinMS > 0 {
		q.Set("min_ms", strconv.FormatFloat(w.MinMS, 'g', -1, 64))
	}
	return q
}

func (w requestFilter) fits(class, tenant string, ms float64) bool {
	return (w.Class == "" || w.Class == class) && (w.Tenant == "" || w.Tenant == tenant) && ms >= w.MinMS
}

func (w requestFilter) ended(r *RequestEnded) bool {
	return w.fits(r.Class, r.Tenant, r.TotalMS) && (w.Outcome == "" || w.Outcome == r.Outcome) &&
		(w.Reason == "" || slices.Contains(r.Reasons, w.Reason) || slices.Contains(r.Broken, w.Reason))
}

// live tells whether one that runs is listed: it has neither outcome nor reason.
func (w requestFilter) live(r *RequestLive) bool {
	return w.fits(r.Class, r.Tenant, r.AgeMS) && w.Outcome == "" && w.Reason == ""
}

func (d *debugPages) requestsPage(filter requestFilter) *RequestsPage {
	page := &RequestsPage{InFlight: []RequestLive{}, Slow: []RequestEnded{}, Failed: []RequestEnded{}, Finished: []RequestEnded{}}
	for _, r := range d.g.liveRequests() {
		if filter.live(&r) {
			page.InFlight = append(page.InFlight, r)
		}
	}
	records := d.g.recorder.Last(debugRecordsMax)
	page.Recent = recentOf(records, wire.Monotonic())
	add := func(list *[]RequestEnded, r RequestEnded) {
		if len(*list) < debugRowsMax {
			*list = append(*list, r)
		}
	}
	for _, r := range endedRequests(records, d.kept.List(capture.Filter{})) {
		if !filter.ended(&r) {
			continue
		}
		add(&page.Finished, r)
		if r.Outcome != telemetry.OK.String() {
			add(&page.Failed, r)
		}
		if r.slow() {
			add(&page.Slow, r)
		}
	}
	return page
}

func (r *RequestEnded) slow() bool {
	return len(r.Broken) > 0 || slices.ContainsFunc(r.Reasons, func(why string) bool { return slices.Contains(slowReasons, why) })
}

// liveRequests are the requests in flight, the oldest first.
func (g *Gateway) liveRequests() []RequestLive {
	type place struct {
		class  string
		tokens int
	}
	admitted := map[string]place{}
	v := g.admission.View()
	for _, w := range v.Waiting {
		admitted[w.ID] = place{class: w.Class}
	}
	for _, r := range v.Running {
		admitted[r.ID] = place{r.Class, r.Tokens}
	}
	now := wire.Monotonic()
	var all []RequestLive
	g.mu.Lock()
	for x := range g.live {
		r, at := &x.record, admitted[x.record.ID]
		all = append(all, RequestLive{
			ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), Tenant: r.Tenant, Class: at.class, Route: r.Route,
			Stage: stageNames[x.stage.Load()], StageMS: milliseconds(now - x.entered.Load()), AgeMS: milliseconds(now - r.Arrived), Tokens: at.tokens,
		})
	}
	g.mu.Unlock()
	slices.SortFunc(all, func(a, b RequestLive) int { return cmp.Or(cmp.Compare(b.AgeMS, a.AgeMS), cmp.Compare(a.ID, b.ID)) })
	return all
}

// endedRequests joins the last records, newest first, with what was kept: of
// that some is older, and all knows more.
func endedRequests(records []telemetry.Record, kept []*capture.View) []RequestEnded {
	views := make(map[string]*capture.View, len(kept))
	for _, v := range kept {
		if !v.Running {
			views[v.ID] = v
		}
	}
	now := wire.Monotonic()
	all := make([]RequestEnded, 0, len(records)+len(views))
	for i := range records {
		row := endedRow(&records[i], now)
		if v := views[row.ID]; v != nil {
			row.Kept, row.Reasons, row.Broken, row.Sentence = true, v.Reasons, v.Broken, v.Sentence
			delete(views, row.ID)
		}
		all = append(all, row)
	}
	for _, v := range views {
		all = append(all, keptRow(v, time.Now()))
	}
	slices.SortFunc(all, func(a, b RequestEnded) int { return cmp.Or(cmp.Compare(a.AgoMS, b.AgoMS), cmp.Compare(a.ID, b.ID)) })
	return all
}

func endedRow(r *telemetry.Record, now int64) RequestEnded {
	row := RequestEnded{
		ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), Tenant: r.Tenant, Class: r.Class, Route: r.Route,
		Outcome: r.Outcome.String(), Error: r.ErrorKind, Status: r.Status,
		AgoMS: milliseconds(now - r.Finished), TotalMS: milliseconds(r.Finished - r.Arrived), FirstTokenMS: milliseconds(r.FirstTokenDelay()),
		PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, CompletionTokens: r.CompletionTokens,
	}
	if r.Admitted != 0 {
		row.QueueMS = milliseconds(r.Admitted - r.Prepared)
	}
	return row
}

// keptRow is the row of a request of which the records say nothing any more.
func keptRow(v *capture.View, now time.Time) RequestEnded {
	ended := v.Arrived.Add(time.Duration(v.WallMS * float64(time.Millisecond)))
	return RequestEnded{
		ID: v.ID, ClientID: v.ClientID, TraceID: v.TraceID, Tenant: v.Tenant, Class: v.Class, Route: v.Route, Outcome: v.Outcome, Error: v.Error, Status: v.Status,
		AgoMS: milliseconds(int64(now.Sub(ended))), TotalMS: v.WallMS, QueueMS: v.QueueMS, FirstTokenMS: v.FirstTokenMS,
		PromptTokens: v.PromptTokens, CachedTokens: v.CachedTokens, CompletionTokens: v.CompletionTokens,
		Kept: true, Reasons: v.Reasons, Broken: v.Broken, Sentence: v.Sentence,
	}
}

// recentOf sums up the records, newest first, that ended within a minute of now.
func recentOf(records []telemetry.Record, now int64) Recent {
	const over = int64(time.Minute)
	s := Recent{OverMS: milliseconds(over)}
	var first []int64
	for i := range records {
		r := &records[i]
		if now-r.Finished > over {
			break
		}
		if i == len(records)-1 {
			s.OverMS = milliseconds(max(now-r.Finished, int64(time.Second)))
		}
		if r.Prepared == 0 && r.Outcome == telemetry.OK { // no generation
			continue
		}
		s.Finished++
		s.Tokens += r.CompletionTokens
		if r.Outcome != telemetry.OK {
			s.Failed++
		}
		if d := r.FirstTokenDelay(); d > 0 {
			first = append(first, d)
		}
	}
	if slices.Sort(first); len(first) > 0 {
		s.FirstTokenP50, s.FirstTokenP99 = milliseconds(first[rank(len(first), 0.5)]), milliseconds(first[rank(len(first), 0.99)])
	}
	return s
}

// rank is the index of a quantile among n sorted values.
func rank(n int, q float64) int { return min(n-1, int(q*float64(n))) }

// Over says for how long s speaks.
func (s Recent) Over() string { return fmt.Sprintf("the last %.0f s", s.OverMS/1000) }
