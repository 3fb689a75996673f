package gateway

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// holdPrepare makes Prepare wait for release or its context.
func holdPrepare() (hook func(context.Context, *wire.Request) *wire.Error, release func()) {
	held := make(chan struct{})
	return func(ctx context.Context, _ *wire.Request) *wire.Error {
		select {
		case <-held:
		case <-ctx.Done():
		}
		return nil
	}, sync.OnceFunc(func() { close(held) })
}

func TestSilenceIsBrokenWhilePreparing(t *testing.T) {
	hook, release := holdPrepare()
	defer release()
	cfg := scripted(hello)
	cfg.Prepare = hook
	r := newRig(t, rigConfig{fake: cfg, gateway: Config{Timeouts: TimeoutConfig{CommitLimit: 10 * time.Millisecond, KeepAlive: 10 * time.Millisecond}}})
	c := r.dial()
	defer c.Close()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`), "Connection: close"))
	br := bufio.NewReader(c)
	for range 2 {
		if _, err := readLine(br, ": keep-alive"); err != nil {
			t.Fatal("no comment while preparing: ", err)
		}
	}
	release()
	if rest, _ := io.ReadAll(br); !strings.Contains(string(rest), "[DONE]") {
		t.Errorf("%s", rest)
	}
}

func TestPrepareEnds(t *testing.T) {
	hook, release := holdPrepare()
	defer release()
	cfg := scripted(hello)
	cfg.Prepare = hook
	r := newRig(t, rigConfig{fake: cfg, gateway: Config{Timeouts: TimeoutConfig{PrepareLimit: 20 * time.Millisecond}}})
	resp := r.chat("")
	if code, _ := errorOf(t, resp.body); resp.status != 503 || code != "engine_unavailable" || !strings.Contains(resp.body, "20ms") {
		t.Errorf("at its limit: %d %s", resp.status, resp.body)
	}

	r = newRig(t, rigConfig{fake: cfg})
	answered := make(chan response, 1)
	go func() {
		resp, _ := r.try("POST", "/v1/chat/completions", chatBody(""))
		answered <- resp
	}()
	eventually(3*time.Second, func() bool { return len(r.fake.Records()) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := r.gw.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	resp = <-answered
	if code, _ := errorOf(t, resp.body); resp.status != 503 || code != "draining" {
		t.Errorf("at the drain limit: %d %s", resp.status, resp.body)
	}
}

// TestACancelOfTheEnginesOwnIsAnError: a client that is still there gets an answer.
func TestACancelOfTheEnginesOwnIsAnError(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Err: wire.Errorf(wire.Canceled, "who asked for that?")})
	resp := r.chat("")
	if code, _ := errorOf(t, resp.body); resp.status != 500 || code != "engine_error" {
		t.Errorf("%d %s", resp.status, resp.body)
	}
}

// TestCommentsComeInSilenceAlone, and not between tokens that flow.
func TestCommentsComeInSilenceAlone(t *testing.T) {
	g := &Gateway{}
	g.cfg.Timeouts.KeepAlive = time.Hour
	quiet := &quietConn{}
	x := &exchange{g: g, timer: time.NewTimer(time.Hour), out: httpd.NewRequest(quiet).Output(time.Second)}
	defer x.timer.Stop()
	x.out.OpenStream(nil)
	x.out.Buf = append(x.out.Buf, "data: x\n\n"...)
	if err := x.out.Flush(); err != nil {
		t.Fatal(err)
	}
	for after, writes := range map[time.Duration]int{time.Minute: 1, 59 * time.Minute: 1, time.Hour + time.Second: 2} {
		quiet.writes = 1
		if err := x.breakSilence(x.out.LastWrite.Add(after)); err != nil || quiet.writes != writes {
			t.Errorf("after %v: %d writes, %v", after, quiet.writes, err)
		}
	}
	if time.Since(x.out.LastWrite) > time.Minute {
		t.Error("a write leaves no instant")
	}
}

// TestAnExchangeWaitsForItsPrepare, which reads the request's memory.
func TestAnExchangeWaitsForItsPrepare(t *testing.T) {
	held := make(chan struct{})
	cfg := scripted(hello)
	cfg.Prepare = func(context.Context, *wire.Request) *wire.Error { <-held; return nil }
	r := newRig(t, rigConfig{fake: cfg})
	c := r.dial()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody("")))
	eventually(3*time.Second, func() bool { return len(r.fake.Records()) == 1 })
	c.Close()
	if eventually(50*time.Millisecond, func() bool { return r.gw.InFlight() == 0 }) {
		t.Error("the exchange ended before its Prepare")
	}
	close(held)
	r.settled()
	if o := r.lastOutcome(); o != "client_gone" {
		t.Errorf("outcome %s", o)
	}
}

// Case D04: a client has no influence on the salt.
func TestTheSaltIsOurs(t *testing.T) {
	var mu sync.Mutex
	salts := map[string]bool{}
	cfg := scripted(hello)
	cfg.Prepare = func(_ context.Context, q *wire.Request) *wire.Error {
		mu.Lock()
		defer mu.Unlock()
		salts[q.Salt] = true
		return nil
	}
	r := newRig(t, rigConfig{fake: cfg})
	for _, field := range []string{`"user":"a"`, `"salt":"stolen"`, `"cache_salt":"stolen","Salt":"stolen"`} {
		r.chat(field)
		r.do("POST", "/v1/completions", textBody(field), "X-Salt", "stolen")
	}
	for _, rec := range r.fake.Records() {
		salts[rec.Salt] = true
	}
	if len(salts) != 1 || salts[""] || salts["stolen"] {
		t.Errorf("salts %v", salts)
	}
}

// ledger is an admission.Controller that remembers what it was told.
type ledger struct {
	admission.Controller
	mu      sync.Mutex
	demands []admission.Demand
	spent   []admission.Spent
}

type ledgerTicket struct {
	admission.Ticket
	l *ledger
}

func (l *ledger) Admit(w admission.Demand) (admission.Ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.demands = append(l.demands, w)
	t, err := l.Controller.Admit(w)
	return ledgerTicket{t, l}, err
}

func (t ledgerTicket) Done(s admission.Spent) {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	t.l.spent = append(t.l.spent, s)
	t.Ticket.Done(s)
}

func TestAdmissionIsToldCostAndUse(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: admission.Config{RunningSequencesMax: 4, WaitLimit: 20 * time.Millisecond}})
	l := &ledger{Controller: r.fifo}
	r.gw.admission = l
	body := `{"model":"fake","prompt":["hi","you"],"n":2,"max_tokens":7}`
	r.do("POST", "/v1/completions", body)
	holder, err := r.fifo.Admit(admission.Demand{Sequences: 4})
	if err != nil {
		t.Fatal(err)
	}
	r.do("POST", "/v1/completions", body)
	holder.Done(admission.Spent{})
	r.settled()
	want := admission.Demand{Tenant: "default", Class: "interactive", Route: "completions", Sequences: 4, PromptTokens: 5, UncachedTokens: 5, DecodeTokens: 28, Bytes: 25}
	records := r.recorder.Last(2)
	slices.Reverse(records)
	for i, w := range l.demands {
		if w.ID == "" || w.BlockTokens != 0 {
			t.Errorf("work %+v", w)
		}
		if rec := &records[i]; rec.ID != w.ID || rec.Arrived+int64(w.Age) < rec.Reserved || rec.Arrived+int64(w.Age) > rec.Accepted {
			t.Errorf("%v old on its way from budgets to admission, %+v", w.Age, rec)
		}
		w.ID, w.BlockTokens, w.Blocks, w.Age = "", 0, nil, 0
		if fmt.Sprintf("%+v", w) != fmt.Sprintf("%+v", want) {
			t.Errorf("work %+v", w)
		}
	}
	if len(l.demands) != 2 {
		t.Errorf("%d demands", len(l.demands))
	}
	if len(l.spent) != 2 || l.spent[0] != (admission.Spent{ComputedTokens: 5, CompletionTokens: 8, Whole: true}) || l.spent[1] != (admission.Spent{}) {
		t.Errorf("spent %+v", l.spent)
	}
}

func TestGenerationsCarryTheRequest(t *testing.T) {
	script := hello
	script.CachedTokens = 1
	r := simpleRig(t, script)
	r.do("POST", "/v1/completions", `{"model":"fake","prompt":["hi","you"],"seed":7}`)
	records := r.fake.Records()
	if len(records) != 2 {
		t.Fatalf("%d generations", len(records))
	}
	first, second := records[0], records[1]
	if first.Options.Seed != 7 || second.Options.Seed != 8 || second.ID != first.ID+"-1" {
		t.Errorf("seeds %d and %d, ids %s and %s", first.Options.Seed, second.Options.Seed, first.ID, second.ID)
	}
	r.settled()
	rec := r.recorder.Last(1)[0]
	for _, g := range records {
		if g.Class != "interactive" || g.Key < rec.Arrived || g.Key != records[0].Key || g.TokenGoal == 0 || g.Trace != rec.Trace || g.Prompt == "" {
			t.Errorf("%+v", g)
		}
	}
	if rec.Engine.Finished == 0 || rec.CompletionTokens != 4 || rec.CachedTokens != 2 || rec.Prompts != 2 || rec.Choices != 2 {
		t.Errorf("record %+v", rec)
	}
}

// TestBodiesAreLetGo: a stream may run for minutes, and its body is read by then.
func TestBodiesAreLetGo(t *testing.T) {
	var body weak.Pointer[byte]
	cfg := scripted(wiretest.Script{Hang: true})
	cfg.Prepare = func(_ context.Context, q *wire.Request) *wire.Error {
		body = weak.Make(&q.Messages[0])
		return nil
	}
	r := newRig(t, rigConfig{fake: cfg})
	c := r.dial()
	defer c.Close()
	io.WriteString(c, rawPost("/v1/chat/completions", strings.Replace(chatBody(""), "hi", strings.Repeat("long ", 400), 1)))
	if !eventually(3*time.Second, func() bool { return r.fake.Live() == 1 }) {
		t.Fatal("not generating")
	}
	if !eventually(3*time.Second, func() bool { runtime.GC(); return body.Value() == nil }) {
		t.Error("the body is kept while its answer is generated")
	}
}

// TestAwaitPrefersThatTheClientLeft, whichever of the two select sees.
func TestAwaitPrefersThatTheClientLeft(t *testing.T) {
	ready := make(chan struct{})
	close(ready)
	x := &exchange{g: &Gateway{}}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	if err := x.await(ready); err != nil {
		t.Fatal(err)
	}
	x.cancel()
	for range 100 {
		if err := x.await(ready); err != errClientGone {
			t.Fatal(err)
		}
	}
}

// TestDeadlinesEndWithTheirRequest: what is refused before it is read is
// written without a deadline of its own, and must not meet the last one.
func TestDeadlinesEndWithTheirRequest(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Timeouts: TimeoutConfig{WriteStallLimit: 100 * time.Millisecond}}})
	for _, fields := range []string{"", `"stream":true`} {
		c := r.dial()
		defer c.Close()
		io.WriteString(c, rawPost("/v1/chat/completions", chatBody(fields)))
		br := bufio.NewReader(c)
		if err := skipResponse(br); err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond)
		io.WriteString(c, "junk\r\n\r\n")
		if line, err := readLine(br, "HTTP/1.1"); err != nil || !strings.Contains(line, "400") {
			t.Errorf("%q: %q %v", fields, line, err)
		}
	}
}

func TestUnreadRequestsAreRecorded(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{Limits: LimitsConfig{BodyBytesMax: 1024}}})
	for request, outcome := range map[string]string{
		rawPost("/v1/completions", strings.Repeat("x", 2000), "X-Request-Id: big"):              "too_large",
		"GET / HTTP/1.1\r\nX-Request-Id: big\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n": "too_large",
		"junk\r\n\r\n": "invalid",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999\r\n\r\n": "too_large",
	} {
		before := r.metric("forebay_requests_total")
		got := r.raw(request)
		last := r.recorder.Last(1)
		if len(last) != 1 || last[0].Outcome.String() != outcome || last[0].Route != "unread" || r.metric("forebay_requests_total") != before+1 {
			t.Errorf("%.40q: %+v", request, last)
			continue
		}
		if id := publicID(&last[0]); !strings.Contains(got, "X-Request-Id: "+id+"\r\n") {
			t.Errorf("%.40q: the record's id %s is not in %s", request, id, got)
		}
	}
}

func TestCurlNeedsNoContentType(t *testing.T) {
	r := simpleRig(t, hello)
	const form = "application/x-www-form-urlencoded"
	if resp := r.do("POST", "/v1/chat/completions", chatBody(""), "Content-Type", form); resp.status != 200 {
		t.Errorf("curl -d: %d %s", resp.status, resp.body)
	}
	if resp := r.do("POST", "/v1/chat/completions", chatBody(""), "Content-Type", form, "Origin", "http://"+r.addr); resp.status != 415 {
		t.Errorf("a browser's form: %d %s", resp.status, resp.body)
	}
}

// TestTheEngineGetsTheCallersTrace: a good traceparent goes on to the engine, a bad one is
// replaced by a trace of our own, and neither it nor an id that the client chose costs the
// request anything.
//
// Case H08.
func TestTheEngineGetsTheCallersTrace(t *testing.T) {
	r := simpleRig(t, hello)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	good := "Traceparent: 00-" + trace + "-b7ad6b7169203331-01"
	for name, c := range map[string]struct {
		headers []string
		joined  bool
		state   string
	}{
		"good":                       {[]string{good, "Tracestate: a=1"}, true, "a=1"},
		"absent":                     {nil, false, ""},
		"upper case":                 {[]string{strings.ToUpper(good), "Tracestate: a=1"}, false, ""},
		"zero":                       {[]string{strings.Replace(good, trace, strings.Repeat("0", 32), 1)}, false, ""},
		"sent twice":                 {[]string{good, good, "Tracestate: a=1"}, false, ""},
		"good, with a bad state":     {[]string{good, "Tracestate: a=" + strings.Repeat("b", 600)}, true, ""},
		"good, with an id of theirs": {[]string{good, "X-Request-Id: order#7"}, true, ""},
	} {
		before := len(r.fake.Records())
		answer := r.raw(rawPost("/v1/chat/completions", chatBody(""), append(c.headers, "Connection: close")...))
		all := r.fake.Records()[before:]
		if len(all) != 1 || !strings.HasPrefix(answer, "HTTP/1.1 200") {
			t.Errorf("%s: %d requests came to the engine; %s", name, len(all), answer)
			continue
		}
		got := all[0].Trace
		if joined := hex.EncodeToString(got.TraceID[:]) == trace; joined != c.joined || got.State != c.state || got.TraceID == [16]byte{} {
			t.Errorf("%s: the engine has %x, state %q", name, got.TraceID, got.State)
		}
	}
}

func TestTracestatesAreOneList(t *testing.T) {
	r := simpleRig(t, hello)
	r.raw(rawPost("/v1/chat/completions", chatBody(""), "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate: a=1", "Tracestate: b=2", "Connection: close"))
	if got := r.fake.Records()[0].Trace.State; got != "a=1,b=2" {
		t.Errorf("state %q", got)
	}
}

// TestHeadersAreNotSplit sends what would become a second header if it were
// echoed as it came.
func TestHeadersAreNotSplit(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), gateway: Config{CORSOrigins: "*"}})
	for _, header := range []string{"X-Request-Id: a\r\n Evil: 1", "X-Request-Id: a\rEvil: 1", "Origin: http://a\r\n\tEvil: 1", "Access-Control-Request-Headers: a\r\n Evil: 1", "Access-Control-Request-Headers: a\rEvil: 1"} {
		for _, request := range []string{
			rawPost("/v1/chat/completions", chatBody(`"stream":true`), header, "Connection: close"),
			rawPost("/v1/chat/completions", chatBody(""), header, "Connection: close"),
			"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\nConnection: close\r\n" + header + "\r\n\r\n",
		} {
			head, _, _ := strings.Cut(r.raw(request), "\r\n\r\n")
			for _, line := range strings.FieldsFunc(head, func(c rune) bool { return c == '\r' || c == '\n' }) {
				if strings.HasPrefix(strings.TrimSpace(line), "Evil") {
					t.Errorf("%q: %s", header, head)
				}
			}
		}
	}
}
