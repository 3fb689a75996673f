package debug

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// RequestsPage lists requests, as GET /debug/requests?format=json gives them.
// A client knows its request by client_id if it sent one, else by id. Times are
// milliseconds.
type RequestsPage struct {
	InFlight []RequestLive  `json:"in_flight"` // oldest first
	Slow     []RequestEnded `json:"slow"`      // they missed a goal, or were slow for their class
	Failed   []RequestEnded `json:"failed"`    // they have no complete answer; not those that were themselves wrong
	Finished []RequestEnded `json:"finished"`  // all, these two included; newest first
	Recent   Recent         `json:"recent"`
}

// RequestLive is a request that has not ended.
type RequestLive struct {
	ID       string  `json:"id"`
	ClientID string  `json:"client_id,omitempty"`
	TraceID  string  `json:"trace_id"`
	Tenant   string  `json:"tenant"`
	Key      string  `json:"key,omitempty"`
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
	Key              string   `json:"key,omitempty"`
	Class            string   `json:"class"`
	Route            string   `json:"route"`
	Outcome          string   `json:"outcome"`
	Failed           bool     `json:"failed"` // it has no complete answer, and was not itself wrong
	Cause            string   `json:"cause"`  // what most of its time went to, or what ended it
	Error            string   `json:"error,omitempty"`
	Status           int      `json:"status"`
	AgoMS            float64  `json:"ago_ms"`
	TotalMS          float64  `json:"total_ms"`
	QueueMS          float64  `json:"queue_ms"`
	FirstTokenMS     float64  `json:"first_token_ms"`
	PromptTokens     int      `json:"prompt_tokens"`
	CachedTokens     int      `json:"cached_tokens"`
	CompletionTokens int      `json:"completion_tokens"`
	Kept             bool     `json:"kept"`              // GET /debug/requests/ID has more
	Reasons          []string `json:"reasons,omitempty"` // why it was kept
	Broken           []string `json:"broken,omitempty"`  // the goals that it missed
	Sentence         string   `json:"sentence,omitempty"`
}

// Recent sums up the generation requests that ended in the last minute, or in a
// shorter time if the records do not reach back a minute.
type Recent struct {
	OverMS        float64 `json:"over_ms"`
	Finished      int     `json:"finished"`
	Failed        int     `json:"failed"`
	Tokens        int     `json:"completion_tokens"`
	FirstTokenP50 float64 `json:"first_token_p50_ms"` // 0 if none had one
	FirstTokenP99 float64 `json:"first_token_p99_ms"`
}

const (
	recordsMax = 4096 // records that a page reads
	rowsMax    = 100  // rows of a list
)

// requests answers GET /debug/requests.
func (p *Pages) requests(query url.Values) (*Answer, error) {
	if id := query.Get("id"); id != "" { // from the search field
		return &Answer{Status: http.StatusSeeOther, Header: map[string]string{"Location": RequestsPath + "/" + url.PathEscape(id)}}, nil
	}
	format, err := formatOf(query, "json")
	if err != nil {
		return nil, err
	}
	filter, err := requestFilterOf(query)
	switch {
	case format == "html":
		return shell(err)
	case err != nil:
		return nil, err
	}
	return asJSON(p.requestsPage(filter))
}

// requestFilter says which requests are listed; a zero field passes all.
type requestFilter struct {
	Class, Tenant, Key, Outcome, Cause, Reason string
	MinMS                                      float64
	// Ended are the least and the longest time since the end, in milliseconds.
	AgoMin, AgoMax float64
}

func requestFilterOf(query url.Values) (requestFilter, error) {
	w := requestFilter{Class: query.Get("class"), Tenant: query.Get("tenant"), Key: query.Get("key"), Outcome: query.Get("outcome"), Cause: query.Get("cause"), Reason: query.Get("reason")}
	for _, of := range []struct {
		param, name string
		known       []string
	}{
		{"outcome", w.Outcome, telemetry.OutcomeNames()}, {"cause", w.Cause, capture.CauseNames()},
		{"reason", w.Reason, append(capture.ReasonNames(), telemetry.GoalNames()...)},
	} {
		if of.name != "" && !slices.Contains(of.known, of.name) {
			return w, &Refusal{Invalid, of.param, fmt.Sprintf("%s must be one of %s", of.param, strings.Join(of.known, ", "))}
		}
	}
	var err error
	now := time.Now()
	if w.AgoMax, err = agoOf(query, "since", now); err != nil {
		return w, err
	}
	if w.AgoMin, err = agoOf(query, "until", now); err != nil {
		return w, err
	}
	if ms := query.Get("min_ms"); ms != "" {
		if w.MinMS, err = strconv.ParseFloat(ms, 64); err != nil || !(w.MinMS >= 0) {
			return w, &Refusal{Invalid, "min_ms", "min_ms must be a number of milliseconds, such as 500"}
		}
	}
	return w, nil
}

// agoOf reads an instant: how long ago it is (10m), or when it was, as RFC 3339 has it.
// It returns milliseconds before now, 0 for none.
func agoOf(query url.Values, name string, now time.Time) (float64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil {
		at, wrong := time.Parse(time.RFC3339, text)
		if wrong != nil {
			return 0, &Refusal{Invalid, name, name + " must be how long ago, such as 10m, or a time such as 2026-01-31T14:05:00Z"}
		}
		ago = now.Sub(at)
	}
	return max(1e-3, milliseconds(int64(ago))), nil
}

func (w requestFilter) fits(class, tenant, key string, ms float64) bool {
	return (w.Class == "" || w.Class == class) && (w.Tenant == "" || w.Tenant == tenant) && (w.Key == "" || w.Key == key) && ms >= w.MinMS
}

func (w requestFilter) ended(r *RequestEnded) bool {
	return w.fits(r.Class, r.Tenant, r.Key, r.TotalMS) && (w.Outcome == "" || w.Outcome == r.Outcome) && (w.Cause == "" || w.Cause == r.Cause) &&
		(w.AgoMax == 0 || r.AgoMS <= w.AgoMax) && (w.AgoMin == 0 || r.AgoMS >= w.AgoMin) &&
		(w.Reason == "" || slices.Contains(r.Reasons, w.Reason) || slices.Contains(r.Broken, w.Reason))
}

// live tells whether a running request is listed: it has neither outcome nor cause nor
// reason yet, and no end.
func (w requestFilter) live(r *RequestLive) bool {
	return w.fits(r.Class, r.Tenant, r.Key, r.AgeMS) && w.Outcome == "" && w.Cause == "" && w.Reason == "" && w.AgoMax == 0 && w.AgoMin == 0
}

func (p *Pages) requestsPage(filter requestFilter) *RequestsPage {
	page := &RequestsPage{InFlight: []RequestLive{}, Slow: []RequestEnded{}, Failed: []RequestEnded{}, Finished: []RequestEnded{}}
	for _, r := range p.live() {
		if filter.live(&r) {
			page.InFlight = append(page.InFlight, r)
		}
	}
	records := p.Records(recordsMax)
	page.Recent = recentOf(records, wire.Monotonic())
	add := func(list *[]RequestEnded, r RequestEnded) {
		if len(*list) < rowsMax {
			*list = append(*list, r)
		}
	}
	for _, r := range endedRequests(records, p.Kept.List()) {
		if !filter.ended(&r) {
			continue
		}
		add(&page.Finished, r)
		if r.Failed {
			add(&page.Failed, r)
		}
		if r.slow() {
			add(&page.Slow, r)
		}
	}
	return page
}

// slowReasons are the reasons to keep a request that say it was slow.
var slowReasons = []string{"slow_first_token", "slow_token", "slow_queue", "hung", "unusual"}

func (r *RequestEnded) slow() bool {
	return len(r.Broken) > 0 || slices.ContainsFunc(r.Reasons, func(why string) bool { return slices.Contains(slowReasons, why) })
}

// live returns the requests in flight, oldest first.
func (p *Pages) live() []RequestLive {
	type place struct {
		class  string
		tokens int
	}
	admitted := map[string]place{}
	v := p.Admission.View()
	for _, w := range v.Waiting {
		admitted[w.ID] = place{class: w.Class}
	}
	for _, r := range v.Running {
		admitted[r.ID] = place{r.Class, r.Tokens}
	}
	all := p.Live()
	for i := range all {
		at := admitted[all[i].ID]
		all[i].Class, all[i].Tokens = at.class, at.tokens
	}
	slices.SortFunc(all, func(a, b RequestLive) int { return cmp.Or(cmp.Compare(b.AgeMS, a.AgeMS), cmp.Compare(a.ID, b.ID)) })
	return all
}

// endedRequests joins the last records, newest first, with the kept requests:
// some of these are older than all records, and all of them have more fields.
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
			row.Kept, row.Reasons, row.Broken, row.Cause, row.Sentence = true, v.Reasons, v.Broken, v.Cause, v.Sentence
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
		ID: r.ID, ClientID: r.ClientID, TraceID: hex.EncodeToString(r.Trace.TraceID[:]), Tenant: r.Tenant, Key: r.Key, Class: r.Class, Route: r.Route,
		Outcome: r.Outcome.String(), Failed: r.Outcome.Failed(), Cause: capture.CauseOf(r), Error: r.ErrorKind, Status: r.Status,
		AgoMS: milliseconds(now - r.Finished), TotalMS: milliseconds(r.Finished - r.Arrived), FirstTokenMS: milliseconds(r.FirstTokenDelay()),
		PromptTokens: r.PromptTokens, CachedTokens: r.CachedTokens, CompletionTokens: r.CompletionTokens,
	}
	if r.Admitted != 0 {
		row.QueueMS = milliseconds(r.Admitted - r.Prepared)
	}
	return row
}

// keptRow is the row of a kept request whose record was overwritten.
func keptRow(v *capture.View, now time.Time) RequestEnded {
	ended := v.Arrived.Add(time.Duration(v.WallMS * float64(time.Millisecond)))
	return RequestEnded{
		ID: v.ID, ClientID: v.ClientID, TraceID: v.TraceID, Tenant: v.Tenant, Key: v.Key, Class: v.Class, Route: v.Route, Outcome: v.Outcome, Failed: v.Failed, Cause: v.Cause, Error: v.Error, Status: v.Status,
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
		if r.Outcome.Failed() {
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
