package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// Case H01.
func TestLabelsAreClosedSets(t *testing.T) {
	r := simpleRig(t, hello)
	r.chat("")
	r.do("POST", "/v1/chat/completions", strings.Replace(chatBody(""), "fake", "x", 1))
	before := strings.Count(r.metrics(), "\n")
	const names = 3000
	var clients sync.WaitGroup
	for worker := range 4 {
		clients.Go(func() {
			for i := worker; i < names; i += 4 {
				name := fmt.Sprintf(`m%d\"\n%s`, rand.Uint64(), strings.Repeat("z", i%100*(i/2000)))
				r.try("POST", "/v1/chat/completions", strings.Replace(chatBody(`"user":"u`+name+`"`), "fake", name, 1), "X-Class", fmt.Sprint(i), "Authorization", fmt.Sprint("Bearer ", i))
			}
		})
	}
	clients.Wait()
	if after := strings.Count(r.metrics(), "\n"); after > before+50 {
		t.Errorf("%d lines became %d", before, after)
	}
	if got := r.metric("forebay_requests_total"); got != names+2 {
		t.Errorf("%v requests counted", got)
	}
}

const firstTokenMetric = "gen_ai_server_time_to_first_token_seconds"

// TestFirstTokenIsObservedOnce has a line for each way in which a first
// token comes, or does not.
//
// Case H09.
func TestFirstTokenIsObservedOnce(t *testing.T) {
	const slow = 30 * time.Millisecond
	scripts := map[string]wiretest.Script{
		"one token":      {Pieces: []string{"x"}},
		"two tokens":     {Pieces: []string{"x", "y"}},
		"late":           {Pieces: []string{"x"}, FirstDelay: slow},
		"empty first":    {Pieces: []string{"", "", "x"}},
		"two choices":    {Choices: [][]string{{"x"}, {"y", "z"}}},
		"nothing":        {},
		"only empty":     {Pieces: []string{"", ""}},
		"fails at once":  {Err: wire.Errorf(wire.Internal, "broken")},
		"reasoning":      {Split: [][]wire.Piece{{{Kind: wire.PieceReasoning, Text: "hm"}}, {{Text: "x"}}}},
		"a call alone":   {Split: [][]wire.Piece{{{Kind: wire.PieceCall, ID: "a", Name: "f"}}, {{Kind: wire.PieceArguments, Text: "{}"}}, {{Kind: wire.PieceCallEnd}}}},
		"fails after it": {Pieces: []string{"x"}, Delay: slow, Err: wire.Errorf(wire.Internal, "broken")},
	}
	script := func(g *wire.Generation) wiretest.Script {
		for name, s := range scripts {
			if strings.Contains(g.Prompt.Text, name+".") {
				return s
			}
		}
		return wiretest.Script{Hang: true}
	}
	r := newRig(t, rigConfig{fake: wiretest.FakeConfig{Script: script}, gateway: Config{Timeouts: TimeoutConfig{CommitLimit: 5 * time.Millisecond, KeepAlive: 5 * time.Millisecond}}})
	ask := func(name, extra string) string {
		return strings.Replace(chatBody(extra), "hi", name+".", 1)
	}
	total, sum := 0.0, 0.0
	for _, c := range []struct {
		script, extra string
		want          float64
		least         time.Duration
	}{
		{"one token", `"stream":true`, 1, 0}, // the role comes first, in an event of its own
		{"one token", "", 1, 0},
		{"two tokens", `"stream":true`, 1, 0},
		{"two tokens", "", 1, 0},
		{"late", `"stream":true`, 1, slow}, // comments come first
		{"late", "", 1, slow},
		{"empty first", `"stream":true`, 1, 0},
		{"two choices", `"stream":true,"n":2`, 1, 0},
		{"two choices", `"n":2`, 1, 0},
		{"reasoning", `"stream":true`, 1, 0},
		{"reasoning", "", 1, 0},
		{"a call alone", `"stream":true`, 1, 0},
		{"a call alone", "", 1, 0},
		{"nothing", `"stream":true`, 0, 0},
		{"nothing", "", 0, 0},
		{"only empty", `"stream":true`, 0, 0},
		{"fails at once", `"stream":true`, 0, 0},
		{"fails at once", "", 0, 0},
		{"fails after it", `"stream":true`, 1, 0},
		{"fails after it", "", 0, 0}, // none of it was sent
		{"one token", `"n":0`, 0, 0}, // refused
	} {
		r.do("POST", "/v1/chat/completions", ask(c.script, c.extra))
		r.settled()
		count, took := r.metric(firstTokenMetric+"_count"), r.metric(firstTokenMetric+"_sum")
		if count-total != c.want || took < sum || took-sum < c.least.Seconds() {
			t.Errorf("%s %s: %v observations of %v s, want %v of at least %v", c.script, c.extra, count-total, took-sum, c.want, c.least)
		}
		total, sum = count, took
	}
	c := r.dial()
	io.WriteString(c, rawPost("/v1/chat/completions", ask("hangs", `"stream":true`)))
	if _, err := readLine(bufio.NewReader(c), ": keep-alive"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	r.settled()
	if got := r.metric(firstTokenMetric + "_count"); got != total {
		t.Errorf("left before the first token: %v observations", got-total)
	}
	if r.metric("forebay_client_gone_total") != 1 {
		t.Error("the client that left was not counted")
	}
}

// TestTheWallClockMayStep: instants of records are of a clock that is never
// set, and one record whose instants disagree is not observed.
//
// Case H09.
func TestTheWallClockMayStep(t *testing.T) {
	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before); err != nil {
		t.Skipf("no CLOCK_MONOTONIC to compare with: %v", err)
	}
	now := wire.Monotonic()
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
	if now < before.Nano() || now > after.Nano() {
		t.Errorf("records are timed at %d, while the monotonic clock went from %d to %d", now, before.Nano(), after.Nano())
	}
	r := simpleRig(t, hello)
	r.recorder.Finish(&telemetry.Record{Route: "chat_completions", Class: "batch", Stream: true, Arrived: 5e9, FirstToken: 3e9, FirstWrite: 4e9, Finished: 6e9})
	if got := strings.Count(r.metrics(), firstTokenMetric+"_count"); got != 0 {
		t.Error("a first token before the arrival was observed")
	}
}

// levelNames are the metrics that are 0 when nothing runs.
var levelNames = regexp.MustCompile(`(?m)^(forebay_(?:requests|admission|engine|kv)_(?:running|waiting|sequences|pages_used|usage_ratio|prefill_waiting_tokens)|forebay_kv_bytes\{state="used"\})(\{[^}]*\})? (\S+)$`)

// levels are those that are not 0, and how many there are in all.
func (r *rig) levels() (up []string, all int) {
	for _, m := range levelNames.FindAllStringSubmatch(r.metrics(), -1) {
		all++
		if v, err := strconv.ParseFloat(m[3], 64); err != nil || v != 0 {
			up = append(up, m[0])
		}
	}
	return up, all
}

// TestLevelsAreZeroWhenIdle ends requests in every way there is, many at a
// time, with the engine going away and coming back among them.
//
// Case H11.
func TestLevelsAreZeroWhenIdle(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the panics
	prepare := func(ctx context.Context, q *wire.Request) *wire.Error {
		switch text := string(q.Messages); {
		case strings.Contains(text, "panic"):
			panic("as the test wants")
		case strings.Contains(text, "unprepared"):
			<-ctx.Done()
			return wire.Errorf(wire.Canceled, "abandoned")
		}
		return nil
	}
	script := func(g *wire.Generation) wiretest.Script {
		if strings.Contains(g.Prompt.Text, "fail") {
			return wiretest.Script{Pieces: []string{"x"}, Err: wire.Errorf(wire.NonFinite, "no number")}
		}
		return wiretest.Script{Endless: true, Delay: time.Millisecond}
	}
	r := newRig(t, rigConfig{
		fake:      wiretest.FakeConfig{Script: script, Prepare: prepare},
		admission: admission.Config{RunningSequencesMax: 4, WaitingRequestsMax: 6},
		gateway:   Config{Timeouts: TimeoutConfig{PrepareLimit: 20 * time.Millisecond}},
	})
	c := r.dial()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`)))
	if !eventually(3*time.Second, func() bool {
		return r.metric("forebay_requests_running") == 1 && r.metric("forebay_engine_sequences") == 1 && r.metric("forebay_kv_usage_ratio") > 0
	}) {
		t.Error("a running request is not shown")
	}
	if up, _ := r.levels(); len(up) < 5 {
		t.Errorf("of a running request only these say something: %q", up)
	}
	const each = 12
	var clients sync.WaitGroup
	for i, ask := range []struct{ said, extra string }{
		{"whole", `"max_tokens":3`}, {"whole", `"max_tokens":3,"stream":true,"n":2`}, {"refused", `"n":0`}, {"panic", ""}, {"unprepared", ""},
		{"fail", ""}, {"fail", `"stream":true`}, {"left", `"stream":true`}, {"left", ""},
	} {
		clients.Go(func() {
			for n := range each {
				body := strings.Replace(chatBody(ask.extra), "hi", ask.said, 1)
				ctx, leave := context.WithTimeout(context.Background(), 3*time.Second)
				if ask.said == "left" {
					ctx, leave = context.WithTimeout(ctx, time.Duration(1+n*i)*time.Millisecond)
				}
				q, _ := http.NewRequestWithContext(ctx, "POST", "http://"+r.addr+"/v1/chat/completions", strings.NewReader(body))
				q.Header.Set("Content-Type", "application/json")
				if resp, err := r.client.Do(q); err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				leave()
			}
		})
	}
	clients.Go(func() {
		for range 5 {
			time.Sleep(5 * time.Millisecond)
			r.fake.SetErr(&wire.Error{Kind: wire.Unavailable, Message: "gone"})
			time.Sleep(2 * time.Millisecond)
			r.fake.SetErr(nil)
		}
	})
	clients.Wait()
	c.Close()
	r.settled()
	if up, all := r.levels(); len(up) > 0 || all < 12 {
		t.Errorf("of %d levels these are not 0 when nothing runs: %q", all, up)
	}
	// Of those that left some never arrived.
	if got := r.metric("forebay_requests_total"); got < 1+7*each || got > 1+9*each {
		t.Errorf("%v requests were counted, of %d that arrived and %d that left", got, 1+7*each, 2*each)
	}
}
