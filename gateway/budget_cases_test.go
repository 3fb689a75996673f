package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// TestTheOnlyPlaceComesBack: of a tenant that may run one request at a time,
// clients leave at random moments, and the place is free once each has ended.
//
// Case C05.
func TestTheOnlyPlaceComesBack(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless), admission: tenants(budget.Limits{Concurrency: 1}), records: 1024})
	for round := range 100 {
		c := r.dial()
		io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true,"max_tokens":2000`), "Authorization: Bearer sk-poor"))
		in := bufio.NewReader(c)
		for range rand.IntN(4) {
			if _, err := readLine(in, "data: "); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		if !eventually(10*time.Second, func() bool { return r.metric("forebay_client_gone_total") == float64(round+1) }) {
			t.Fatalf("round %d: the client that left was not noticed", round)
		}
		if resp := r.as("sk-poor", chatBody(`"max_tokens":1`)); resp.status != 200 {
			t.Fatalf("round %d: %d %s", round, resp.status, resp.body)
		}
		r.settled()
	}
	if load := r.fifo.Load(); load != (admission.Load{}) {
		t.Errorf("%+v is left", load)
	}
}

// TestWhatCannotBeCountedIsNotAdmitted: where the tokens of a prompt cannot be
// counted, its request is refused, and takes nothing from its tenant.
//
// Case C25.
func TestWhatCannotBeCountedIsNotAdmitted(t *testing.T) {
	cfg := scripted(hello)
	cfg.Prepare = func(_ context.Context, q *wire.Request) *wire.Error {
		if strings.Contains(string(q.Messages), "uncountable") {
			return wire.Errorf(wire.Internal, "the tokenizer failed")
		}
		return nil
	}
	r := newRig(t, rigConfig{fake: cfg, admission: tenants(budget.Limits{TokensPerDay: 1000})})
	for range 5 {
		if resp := r.as("sk-poor", strings.Replace(chatBody(""), "hi", "uncountable", 1)); resp.status != 500 {
			t.Errorf("%d %s", resp.status, resp.body)
		}
	}
	r.settled()
	if a := r.budgets.Audit(); a.Reserved != 0 || len(r.budgets.Holders(10)) != 0 {
		t.Errorf("%+v", a)
	}
	if resp := r.as("sk-poor", chatBody("")); resp.status != 200 {
		t.Errorf("a countable one: %d %s", resp.status, resp.body)
	}
}

// TestEveryChoiceIsCharged: n choices reserve n times the tokens before they
// start, and prompts are each counted once.
func TestEveryChoiceIsCharged(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(wiretest.Script{Endless: true}), admission: tenants(budget.Limits{TokensPerDay: 100})})
	ask := func(body string) response {
		return r.do("POST", "/v1/completions", body, "Authorization", "Bearer sk-poor")
	}
	if resp := ask(textBody(`"n":9,"max_tokens":12`)); resp.status != 400 || !strings.Contains(resp.body, "110") {
		t.Errorf("more than the limit: %d %s", resp.status, resp.body)
	}
	for _, c := range []struct {
		body string
		used int
	}{{textBody(`"n":3,"max_tokens":8`), 2 + 24}, {`{"model":"fake","prompt":["hi","hi"],"n":2,"max_tokens":5}`, 4 + 20}} {
		before := r.budgets.Audit()
		if resp := ask(c.body); resp.status != 200 {
			t.Fatalf("%d %s", resp.status, resp.body)
		}
		r.settled()
		if a := r.budgets.Audit(); int(a.Input+a.Output-before.Input-before.Output) != c.used {
			t.Errorf("%s: charged %+v, want %d", c.body, a, c.used)
		}
	}
	if resp := ask(textBody(`"n":6,"max_tokens":9`)); resp.status != 429 { // 56 of the 50 that are left
		t.Errorf("more than is left: %d %s", resp.status, resp.body)
	}
}

// TestWhatIsNoRequestTakesNothing: a browser's preflight (A25), lists of models and
// requests that are wrong take nothing from a tenant's budgets.
func TestWhatIsNoRequestTakesNothing(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{CORSOrigins: "http://a.test"}, admission: tenants(budget.Limits{RequestsPerMinute: 1})})
	for range 5 {
		r.do("OPTIONS", "/v1/chat/completions", "", "Origin", "http://a.test", "Access-Control-Request-Method", "POST", "Authorization", "Bearer sk-poor")
		r.do("GET", "/v1/models", "", "Authorization", "Bearer sk-poor")
		r.as("sk-poor", chatBody(`"n":0`))
		r.as("sk-poor", strings.Replace(chatBody(""), `"fake"`, `"other"`, 1))
	}
	if resp := r.as("sk-poor", chatBody("")); resp.status != http.StatusOK {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	if resp := r.as("sk-poor", chatBody("")); resp.status != http.StatusTooManyRequests {
		t.Errorf("control: a second request of the minute: %d", resp.status)
	}
}

// TestWhatClientsSayMakesNoSeries: names of end users, of fields and of models
// that a tenant with limits sends make no series of metrics, and the budgets of end
// users stay within their bound.
//
// Case H01.
func TestWhatClientsSayMakesNoSeries(t *testing.T) {
	cfg := tenants(budget.Limits{RequestsPerMinute: 1e6})
	cfg.Tenants[2].UserLimits = budget.Limits{RequestsPerMinute: 1e6}
	r := newRig(t, rigConfig{fake: scripted(hello), admission: cfg, budget: budget.Config{UsersMax: 16}})
	unknown := func(i int) { r.as("sk-poor", strings.Replace(chatBody(""), `"fake"`, fmt.Sprintf(`"m%d"`, i), 1)) }
	r.as("sk-poor", chatBody(""))
	unknown(-1)
	r.settled()
	series := func() map[string]bool { // without buckets, of which empty ones are not shown
		all := map[string]bool{}
		for line := range strings.Lines(r.metrics()) {
			if end := strings.LastIndexByte(line, ' '); end > 0 && !strings.HasPrefix(line, "#") && !strings.Contains(line, "_bucket{") {
				all[line[:end]] = true
			}
		}
		return all
	}
	before := series()
	for i := range 300 {
		r.as("sk-poor", chatBody(fmt.Sprintf(`"user":"u%d","f%d":1`, i, i)))
		unknown(i)
	}
	r.settled()
	said := regexp.MustCompile(`"[ufm]-?[0-9]+"`)
	for name := range series() {
		if said.MatchString(name) {
			t.Errorf("a client's word is in a series: %s", name)
		}
	}
	if n := len(series()); n > len(before)+50 { // those of classes appear as they are read
		t.Errorf("%d series, %d before", n, len(before))
	}
	if n := len(r.budgets.Holders(1000)); n > 2*16 {
		t.Errorf("%d budgets are kept", n)
	}
}
