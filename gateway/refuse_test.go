package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// refuser is a Controller that refuses everybody.
type refuser struct {
	admission.Controller
	refusal *admission.Refusal
}

func (c refuser) Admit(admission.Demand) (admission.Ticket, error) { return nil, c.refusal }

var wholeSeconds = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)

// checkRetry checks the Retry-After of a refusal, for a true wait of at least
// least and at most most.
func checkRetry(t *testing.T, name string, resp response, least, most time.Duration) {
	t.Helper()
	text := resp.header.Get("Retry-After")
	seconds, _ := strconv.Atoi(text)
	ms, err := strconv.Atoi(resp.header.Get("Retry-After-Ms"))
	if !wholeSeconds.MatchString(text) || err != nil {
		t.Errorf("%s: Retry-After %q, Retry-After-Ms %q", name, text, resp.header.Get("Retry-After-Ms"))
		return
	}
	wait := time.Duration(ms) * time.Millisecond
	if wait < least || wait >= most+time.Millisecond || time.Duration(seconds)*time.Second < wait || time.Duration(seconds-1)*time.Second >= wait {
		t.Errorf("%s: told to wait %d s and %v, true is %v to %v", name, seconds, wait, least, most)
	}
}

// TestEveryRefusalSaysWhen goes through all reasons of admission.
//
// Case C12: a drain and an engine that is gone are in TestDrain and TestEngineGone.
func TestEveryRefusalSaysWhen(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello)})
	queue := r.gw.admission
	operations, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[admission.Reason]struct {
		status int
		code   string
	}{
		admission.TooLarge: {400, "request_cannot_fit"}, admission.QueueFull: {503, "queue_full"}, admission.TimedOut: {503, "queue_timeout"},
		admission.Late: {503, "would_be_late"}, admission.PastDeadline: {504, "deadline_exceeded"}, admission.Overloaded: {503, "overloaded"},
		admission.RetryBudget: {503, "too_many_retries"}, admission.ClassClosed: {503, "class_closed"}, admission.Revoked: {503, "no_longer_in_time"},
	} {
		if row := "| `" + reason.String() + "` | `" + want.code + "`"; !strings.Contains(string(operations), row) {
			t.Errorf("docs/operations.md has no row that begins with %s", row)
		}
		for _, wait := range []time.Duration{0, time.Millisecond, 1500 * time.Millisecond, 40 * time.Second} {
			r.gw.admission = refuser{queue, &admission.Refusal{Reason: reason, Message: "no", RetryAfter: wait, Predicted: 2 * wait}}
			resp := r.chat(`"stream":true`)
			code, _ := errorOf(t, resp.body)
			e := object(t, resp.body)["error"].(map[string]any)
			if resp.status != want.status || code != want.code || e["reason"] != reason.String() || resp.header.Get(waitReasonHeader) != reason.String() || resp.header.Get(classHeader) != "interactive" {
				t.Errorf("%v: %d %v %s", reason, resp.status, resp.header, resp.body)
			}
			if wait > 0 && (e["predicted_wait_ms"] != float64(2*wait.Milliseconds()) || resp.header.Get(predictedHeader) != fmt.Sprint(2*wait.Milliseconds())) {
				t.Errorf("%v: predicted %v", reason, e["predicted_wait_ms"])
			}
			if want.status != 503 {
				if resp.header.Get("Retry-After") != "" || resp.header.Get("X-Should-Retry") != "false" {
					t.Errorf("%v: tells to retry: %v", reason, resp.header)
				}
				continue
			}
			if wait == 0 {
				wait = retryAfterDefault
			}
			checkRetry(t, reason.String(), resp, wait, wait*5/4)
		}
	}
	r.gw.admission = queue
	if resp := r.chat(""); resp.status != 200 {
		t.Errorf("after all that: %d", resp.status)
	}
	if n := r.metric("forebay_admission_refused_total"); n != 36 {
		t.Errorf("%v refusals counted", n)
	}
}

// TestBudgetRefusals: each limit says when, and keeps its word.
//
// Case C12.
func TestBudgetRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		limits budget.Limits
		reason string
		hold   bool // another request runs meanwhile
		words  string
	}{
		"requests":    {limits: budget.Limits{RequestsPerMinute: 300}, reason: "budget_requests"},
		"input":       {limits: budget.Limits{InputTokensPerMinute: 9000}, reason: "budget_input_tokens", words: "one two three four five"},
		"output":      {limits: budget.Limits{OutputTokensPerMinute: 1200}, reason: "budget_output_tokens"},
		"concurrency": {limits: budget.Limits{Concurrency: 1}, reason: "budget_concurrency", hold: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigConfig{fake: wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
				if strings.Contains(g.Prompt.Text, "hold") {
					return wiretest.Script{Hang: true}
				}
				return wiretest.Script{Pieces: strings.Split(strings.Repeat("t ", 5), " ")}
			}}, admission: tenants(c.limits), budget: budget.Config{Burst: time.Second}})
			body := strings.Replace(chatBody(`"max_tokens":5`), "hi", "hi "+c.words, 1)
			var holder net.Conn
			if c.hold {
				holder = r.dial()
				defer holder.Close()
				io.WriteString(holder, rawPost("/v1/chat/completions", strings.Replace(chatBody(""), "hi", "hold", 1), "Authorization: Bearer sk-poor"))
				eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
			}
			var resp response
			for range 50 {
				if resp = r.as("sk-poor", body); resp.status != 200 {
					break
				}
			}
			code, _ := errorOf(t, resp.body)
			if e := object(t, resp.body)["error"].(map[string]any); resp.status != 429 || code != "rate_limit_exceeded" || e["reason"] != c.reason {
				t.Fatalf("%d %s", resp.status, resp.body)
			}
			checkRetry(t, name, resp, time.Millisecond, 3*time.Second)
			if holder != nil {
				holder.Close()
				r.settled()
			} else {
				ms, _ := strconv.Atoi(resp.header.Get("Retry-After-Ms"))
				time.Sleep(time.Duration(ms)*time.Millisecond + time.Millisecond)
			}
			if resp = r.as("sk-poor", body); resp.status != 200 {
				t.Errorf("a retry after the wait: %d %s", resp.status, resp.body)
			}
			r.settled()
			if a := r.budgets.Audit(); a.Reserved != a.Settled+a.Refunded || a.Refused == 0 {
				t.Errorf("%+v", a)
			}
		})
	}
}

// Case C12: larger than the whole limit.
func TestMoreThanALimitIsNoRetry(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{InputTokensPerMinute: 20, TokensPerDay: 30})})
	resp := r.as("sk-poor", strings.Replace(chatBody(""), "hi", strings.Repeat("many words ", 50), 1))
	if code, _ := errorOf(t, resp.body); resp.status != 400 || code != "request_exceeds_limit" || resp.header.Get("Retry-After") != "" {
		t.Errorf("%d %v %s", resp.status, resp.header, resp.body)
	}
	for range 10 {
		if resp = r.as("sk-poor", chatBody(`"max_tokens":8`)); resp.status != 200 {
			break
		}
	}
	if resp.status != 429 {
		t.Errorf("%d %s", resp.status, resp.body)
	}
}

func TestRateLimitHeadersDrop(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{RequestsPerMinute: 60, InputTokensPerMinute: 60000, OutputTokensPerMinute: 600}), budget: budget.Config{Burst: time.Minute}})
	left := 60
	for i, fields := range []string{"", `"stream":true`, `"max_tokens":3`} {
		resp := r.as("sk-poor", chatBody(fields))
		h := resp.header
		n, err := strconv.Atoi(h.Get("X-Ratelimit-Remaining-Requests"))
		if err != nil || n >= left || h.Get("X-Ratelimit-Limit-Requests") != "60" || h.Get("X-Ratelimit-Limit-Input-Tokens") != "60000" || h.Get("X-Ratelimit-Limit-Tokens") != "600" {
			t.Errorf("request %d: %v", i, h)
		}
		if _, err := time.ParseDuration(h.Get("X-Ratelimit-Reset-Requests")); err != nil {
			t.Errorf("reset: %v", err)
		}
		left = n
	}
	if resp := r.as("sk-full", chatBody("")); resp.header.Get("X-Ratelimit-Limit-Requests") != "" {
		t.Error("limits of a tenant without any")
	}
}

// TestTheShortestWaitCounts: by class, for all, by the client's header;
// what expires is never dispatched.
//
// Case C13.
func TestTheShortestWaitCounts(t *testing.T) {
	const short = 60 * time.Millisecond
	for name, c := range map[string]struct {
		class, all time.Duration
		header     string
		status     int
	}{
		"class":         {class: short, all: time.Minute, header: "60000", status: 503},
		"all":           {class: time.Minute, all: short, header: "60000", status: 503},
		"header":        {class: time.Minute, all: time.Minute, header: "60", status: 504},
		"class, alone":  {class: short, status: 503},
		"header, alone": {header: "60", status: 504},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigConfig{fake: scripted(wiretest.Script{Hang: true}), admission: admission.Config{
				RunningSequencesMax: 1, WaitLimit: c.all, Classes: []admission.Class{{Name: "interactive", WaitLimit: c.class, FirstTokenGoal: time.Hour}},
			}})
			holder := r.dial()
			defer holder.Close()
			io.WriteString(holder, rawPost("/v1/chat/completions", chatBody("")))
			eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					headers := []string{}
					if c.header != "" {
						headers = []string{deadlineHeader, c.header}
					}
					start := time.Now()
					resp, err := r.try("POST", "/v1/chat/completions", chatBody(""), headers...)
					if err != nil || resp.status != c.status || time.Since(start) < short {
						t.Errorf("%v, %d after %v: %s", err, resp.status, time.Since(start), resp.body)
					}
					if c.status == 503 && !wholeSeconds.MatchString(resp.header.Get("Retry-After")) {
						t.Errorf("Retry-After %q", resp.header.Get("Retry-After"))
					}
				})
			}
			wg.Wait()
			holder.Close()
			r.settled()
			dispatched := 0
			for _, rec := range r.fake.Records() {
				if rec.Dispatched {
					dispatched++
				}
			}
			if dispatched != 1 {
				t.Errorf("%d requests were dispatched", dispatched)
			}
		})
	}
}

// TestTheRefusedDoNotReturnAtOnce: the instants at which they may are spread over the
// refill.
//
// Case C25.
func TestTheRefusedDoNotReturnAtOnce(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{RequestsPerMinute: 600}), budget: budget.Config{Burst: 10 * time.Second}})
	var mu sync.Mutex
	var returns []float64 // ms from the start
	var wg sync.WaitGroup
	began := time.Now()
	for i := range 300 {
		wg.Go(func() {
			resp, err := r.try("POST", "/v1/chat/completions", chatBody(fmt.Sprintf(`"user":"%d"`, i)), "Authorization", "Bearer sk-poor")
			if err == nil && resp.status == 429 {
				ms, _ := strconv.ParseFloat(resp.header.Get("Retry-After-Ms"), 64)
				mu.Lock()
				returns = append(returns, ms+1e3*time.Since(began).Seconds())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(returns) < 50 {
		t.Fatalf("%d refusals", len(returns))
	}
	spread := slices.Max(returns) - slices.Min(returns)
	window := float64(len(returns)) / 10 * 1000 // ms until so many have been refilled
	if spread < window/2 {
		t.Errorf("%d refused, told to return within %v ms; the refill takes %v ms", len(returns), spread, window)
	}
}

// A refusal shows the budgets as they are: of a day's quota too, and until full.
func TestRefusalShowsTheBudgets(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{RequestsPerMinute: 20, TokensPerDay: 6000})})
	var resp response
	for range 10 {
		if resp = r.as("sk-poor", chatBody(`"max_tokens":8`)); resp.status != 200 {
			break
		}
	}
	h := resp.header
	reset, err := time.ParseDuration(h.Get("X-Ratelimit-Reset-Requests"))
	if resp.status != 429 || err != nil || h.Get("X-Ratelimit-Limit-Requests") != "20" {
		t.Fatalf("%d %v %s", resp.status, h, resp.body)
	}
	if reset < 6*time.Second || reset > 9*time.Second { // three at once, three seconds each
		t.Errorf("%v until the requests are whole", reset)
	}
	if !strings.Contains(string(resp.body), "requests_per_minute of 20 is used up; it allows 3 at once and gains 1 every 3 s") {
		t.Errorf("%s", resp.body)
	}
	r = newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{TokensPerDay: 60})})
	for range 20 {
		if resp = r.as("sk-poor", chatBody(`"max_tokens":8`)); resp.status != 200 {
			break
		}
	}
	if left, _ := strconv.Atoi(resp.header.Get("X-Ratelimit-Remaining-Tokens")); resp.status != 429 || resp.header.Get("X-Ratelimit-Limit-Tokens") != "60" || left > 20 {
		t.Errorf("%d %v", resp.status, resp.header)
	}
}

// Limits of users, classes, routes and models hold besides those of the tenant, and
// a dry run refuses nothing.
func TestPartsAndUsersHaveLimits(t *testing.T) {
	cfg := tenants(budget.Limits{RequestsPerMinute: 6000})
	for i := range cfg.Tenants {
		if slices.Contains(cfg.Tenants[i].Keys, "sk-poor") {
			cfg.Tenants[i].UserLimits = budget.Limits{Concurrency: 5, TokensPerMonth: 40}
		}
	}
	cfg.PartLimits = []admission.PartLimits{
		{Name: "rare", Route: "completions", Limits: budget.Limits{RequestsPerMinute: 1}},
		{Name: "tried", Class: "interactive", Limits: budget.Limits{RequestsPerMinute: 1, DryRun: true}},
	}
	r := newRig(t, rigConfig{fake: scripted(hello), admission: cfg})
	until := func(user string) (n int, last response) {
		for ; n < 20; n++ {
			if last = r.as("sk-poor", chatBody(`"max_tokens":4,"user":"`+user+`"`)); last.status != 200 {
				break
			}
		}
		return n, last
	}
	a, resp := until("ann@example.com")
	if code, _ := errorOf(t, resp.body); a == 0 || a == 20 || resp.status != 429 || code != "insufficient_quota" || !strings.Contains(string(resp.body), "tokens_per_month of 40 of this user is used up") {
		t.Fatalf("%d, then %d %s", a, resp.status, resp.body)
	}
	if b, _ := until("bob"); b != a {
		t.Errorf("another user had %d requests, the first %d", b, a)
	}
	r.settled()
	if dry := r.budgets.Audit().Dry[budget.Requests]; dry == 0 {
		t.Error("the dry run counted nothing")
	}
}

// TestAnImpatientClientIsToldItsOwnTime: a client that comes back at once is told when
// its own turn comes, over one connection or over one after the other. Beside another
// connection of its address each is told a time of its own.
func TestAnImpatientClientIsToldItsOwnTime(t *testing.T) {
	for name, c := range map[string]struct {
		reuse, beside bool
		want          float64 // seconds, of the third refusal
	}{
		"one connection": {reuse: true, want: 20}, "a connection each": {want: 20}, "beside another": {beside: true, want: 60},
	} {
		r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{RequestsPerMinute: 3})})
		r.client.Transport.(*http.Transport).DisableKeepAlives = !c.reuse
		if c.beside {
			defer r.dial().Close()
		}
		r.as("sk-poor", chatBody(""))
		var last response
		for range 3 {
			last = r.as("sk-poor", chatBody(""))
		}
		ms, _ := strconv.ParseFloat(last.header.Get("Retry-After-Ms"), 64)
		if last.status != 429 || ms/1000 > c.want || ms/1000 < c.want-3 {
			t.Errorf("%s: %d, told to wait %v s, want %v", name, last.status, ms/1000, c.want)
		}
	}
}

// TestALimitOfARouteAlone holds for each tenant by itself, over all of its keys, and
// leaves its other routes alone.
func TestALimitOfARouteAlone(t *testing.T) {
	cfg := tenants(budget.Limits{})
	cfg.Tenants[1].Keys = append(cfg.Tenants[1].Keys, "sk-low-2")
	cfg.PartLimits = []admission.PartLimits{
		{Name: "texts", Route: "completions", Limits: budget.Limits{RequestsPerMinute: 1}},
		{Name: "talks", Route: "chat_completions", Tenant: "full", Limits: budget.Limits{RequestsPerMinute: 2}},
	}
	r := newRig(t, rigConfig{fake: scripted(hello), admission: cfg})
	ask := func(key, path string) response {
		body := chatBody("")
		if path == "/v1/completions" {
			body = textBody("")
		}
		return r.do("POST", path, body, "Authorization", "Bearer "+key)
	}
	for _, c := range []struct {
		key, path string
		admitted  int
		limit     string // that refuses
	}{
		{"sk-full", "/v1/completions", 1, "1"}, {"sk-full", "/v1/chat/completions", 1, "2"},
		{"sk-low", "/v1/completions", 1, "1"}, {"sk-low-2", "/v1/completions", 0, "1"}, {"sk-low", "/v1/chat/completions", 20, ""},
	} {
		n, last := 0, response{status: 200}
		for ; n < 20 && last.status == 200; n++ {
			last = ask(c.key, c.path)
		}
		if last.status != 200 {
			n--
			if e := object(t, last.body)["error"].(map[string]any); last.status != 429 || e["reason"] != "budget_requests" || !strings.Contains(e["message"].(string), "of this route") || last.header.Get("X-Ratelimit-Limit-Requests") != c.limit {
				t.Errorf("%s %s: %d %v %s", c.key, c.path, last.status, last.header, last.body)
			}
		}
		if n != c.admitted {
			t.Errorf("%s %s: %d admitted, want %d", c.key, c.path, n, c.admitted)
		}
	}
}
