package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// endless streams tokens until someone stops it.
var endless = wiretest.Script{Endless: true, Delay: 2 * time.Millisecond}

func (r *rig) lastOutcome() string {
	r.t.Helper()
	last := r.recorder.Last(1)
	if len(last) == 0 {
		r.t.Fatal("no record")
	}
	return last[0].Outcome.String()
}

func TestUsageComesOnceAndLast(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Pieces: []string{"a", "b"}, CachedTokens: 1})
	for path, body := range map[string]func(string) string{"/v1/chat/completions": chatBody, "/v1/completions": textBody} {
		plain := object(t, r.do("POST", path, body("")).body)["usage"]
		all := events(r.do("POST", path, body(`"stream":true,"stream_options":{"include_usage":true}`)).body)
		if all[len(all)-1] != "[DONE]" {
			t.Fatalf("no [DONE]: %q", all)
		}
		last := object(t, all[len(all)-2])
		if fmt.Sprint(last["usage"]) != fmt.Sprint(plain) || len(last["choices"].([]any)) != 0 {
			t.Errorf("usage %v, plain %v, choices %v", last["usage"], plain, last["choices"])
		}
		for _, e := range all[:len(all)-2] {
			if usage, ok := object(t, e)["usage"]; !ok || usage != nil {
				t.Errorf("usage %v before the last event", usage)
			}
		}
		for _, e := range events(r.do("POST", path, body(`"stream":true`)).body) {
			if e != "[DONE]" && strings.Contains(e, `"usage"`) {
				t.Errorf("unasked usage: %s", e)
			}
		}
	}
}

func TestBrokenStreamsEndWithAnError(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Pieces: []string{"a", "b", "c"}, Delay: time.Millisecond, Err: wire.Errorf(wire.Internal, "secret words")})
	// The head says nothing of a close, so the connection serves the next request too,
	// whose head says that it closes.
	got := r.raw(rawPost("/v1/chat/completions", chatBody(`"stream":true`)) + rawPost("/v1/chat/completions", chatBody(`"stream":true`), "Connection: close"))
	got, next, whole := strings.Cut(got, "\r\n0\r\n\r\n")
	if !strings.HasPrefix(next, "HTTP/1.1 200 OK\r\n") || !strings.Contains(next, "\r\nConnection: close\r\n") || !strings.HasSuffix(next, "0\r\n\r\n") || strings.Contains(got, "Connection:") {
		t.Errorf("the next answer is %q", next)
	}
	all := events(got)
	if code, _ := errorOf(t, all[len(all)-1]); code != "engine_error" {
		t.Errorf("code %s", code)
	}
	if strings.Contains(got, "[DONE]") || strings.Contains(got, `"finish_reason":"stop"`) || strings.Contains(got, "secret") || !whole {
		t.Errorf("%s", got)
	}
	r.settled()
	if o := r.lastOutcome(); o != "engine_error" {
		t.Errorf("outcome %s", o)
	}
	if resp := r.chat(""); resp.status != 500 {
		t.Errorf("plain: %d", resp.status)
	}
}

func TestRefusedStreamsArePlainErrors(t *testing.T) {
	r := simpleRig(t, hello)
	base := goroutines()
	one := rawPost("/v1/chat/completions", chatBody(`"stream":true,"n":0`))
	got := r.raw(strings.Repeat(one, 50) + rawPost("/v1/models", "", "Connection: close"))
	if n := strings.Count(got, "HTTP/1.1 400"); n != 50 || strings.Contains(got, "event-stream") {
		t.Errorf("%d refusals", n)
	}
	if !eventually(3*time.Second, func() bool { return goroutines() <= base+5 }) {
		t.Errorf("%d goroutines, %d before", goroutines(), base)
	}
}

func TestSilenceIsBrokenInQueueAndPrefill(t *testing.T) {
	script := func(g *wire.Generation) wiretest.Script {
		if strings.Contains(g.Prompt.Text, "hold") {
			return endless
		}
		return wiretest.Script{Pieces: []string{"x"}, FirstDelay: 200 * time.Millisecond}
	}
	r := newRig(t, rigConfig{
		fake:      wiretest.FakeConfig{Script: script},
		admission: admission.Config{RunningSequencesMax: 1},
		gateway:   Config{Timeouts: TimeoutConfig{CommitLimit: 20 * time.Millisecond, KeepAlive: 20 * time.Millisecond}},
	})
	holder := r.dial()
	io.WriteString(holder, rawPost("/v1/chat/completions", strings.Replace(chatBody(""), "hi", "hold", 1)))
	eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
	c := r.dial()
	defer c.Close()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`), "Connection: close"))
	br := bufio.NewReader(c)
	if _, err := readLine(br, ": keep-alive"); err != nil {
		t.Fatal("no comment while queued: ", err)
	}
	holder.Close()
	rest, err := io.ReadAll(br)
	if err != nil {
		t.Fatal(err)
	}
	text := string(rest)
	if strings.Count(text, ": keep-alive") < 3 || !strings.Contains(text, "[DONE]") || strings.Contains(text, "id:") || strings.Contains(text, "retry:") {
		t.Errorf("%s", text)
	}
	r.settled()
	if rec := r.recorder.Last(1)[0]; time.Duration(rec.FirstTokenDelay()) < 200*time.Millisecond {
		t.Errorf("comments counted as the first token: %v", time.Duration(rec.FirstTokenDelay()))
	}
}

func TestCommittedStreamsFailInside(t *testing.T) {
	r := newRig(t, rigConfig{
		fake:      scripted(wiretest.Script{Hang: true}),
		admission: admission.Config{RunningSequencesMax: 1, WaitLimit: time.Second},
		gateway:   Config{Timeouts: TimeoutConfig{CommitLimit: 20 * time.Millisecond}},
	})
	holder := r.dial()
	defer holder.Close()
	io.WriteString(holder, rawPost("/v1/chat/completions", chatBody("")))
	eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
	got := r.raw(rawPost("/v1/chat/completions", chatBody(`"stream":true`)))
	all := events(got)
	if code, _ := errorOf(t, all[len(all)-1]); code != "queue_timeout" || !strings.HasPrefix(got, "HTTP/1.1 200") || strings.Contains(got, "[DONE]") {
		t.Errorf("%s", got)
	}
	resp := r.chat("")
	if code, _ := errorOf(t, resp.body); resp.status != 503 || code != "queue_timeout" || resp.header.Get("Retry-After") == "" || resp.header.Get("Retry-After-Ms") == "" || resp.header.Get("X-Should-Retry") != "true" {
		t.Errorf("%d %v %s", resp.status, resp.header, resp.body)
	}
}

func TestQueueFullIsRefusedAtOnce(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(wiretest.Script{Hang: true}), admission: admission.Config{RunningSequencesMax: 1, WaitingRequestsMax: 1}})
	var held []net.Conn
	for range 2 {
		c := r.dial()
		io.WriteString(c, rawPost("/v1/chat/completions", chatBody("")))
		held = append(held, c)
		n := len(held)
		eventually(3*time.Second, func() bool {
			return r.gw.InFlight() == n && (n == 1 || r.fifo.Load().Waiting == 1) && r.fake.Live() == 1
		})
	}
	resp := r.chat(`"stream":true`)
	if code, _ := errorOf(t, resp.body); resp.status != 503 || code != "queue_full" || resp.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", resp.status, resp.header, resp.body)
	}
	if resp := r.chat(`"n":2`); resp.status != 400 {
		t.Errorf("two sequences where one may run: %d %s", resp.status, resp.body)
	}
	for _, c := range held {
		c.Close()
	}
	r.settled()
}

func TestAnswersAreNotMixed(t *testing.T) {
	cfg := wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
		_, rest, _ := strings.Cut(g.Prompt.Text, "mark-")
		mark := "mark-" + rest[:32]
		return wiretest.Script{Pieces: []string{mark[:7], mark[7:20], mark[20:]}, Delay: time.Duration(rand.IntN(3)) * time.Millisecond}
	}}
	r := newRig(t, rigConfig{fake: cfg, admission: admission.Config{
		RunningSequencesMax: 50, Classes: []admission.Class{{Name: "interactive", FirstTokenGoal: time.Hour}}, // no machine is too slow
	}})
	var wg sync.WaitGroup
	for i := range 400 {
		mark := fmt.Sprintf("mark-%032x", rand.Uint64())
		body := strings.Replace(chatBody(fmt.Sprintf(`"stream":%v`, i%2 == 0)), "hi", mark, 1)
		wg.Go(func() {
			if i%7 == 0 {
				c, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, rawPost("/v1/chat/completions", body))
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
				c.Close()
				return
			}
			resp, err := r.try("POST", "/v1/chat/completions", body, "X-Request-Id", mark)
			if err != nil || resp.status != 200 {
				t.Errorf("%v %d %s", err, resp.status, resp.body)
				return
			}
			text := ""
			if i%2 == 0 {
				for _, e := range events(resp.body) {
					if e != "[DONE]" {
						text += deltaText(object(t, e))
					}
				}
			} else {
				text = object(t, resp.body)["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"].(string)
			}
			if text != mark || resp.header.Get("X-Request-Id") != mark {
				t.Errorf("got %q for %q", text, mark)
			}
		})
	}
	wg.Wait()
	r.settled()
}

func deltaText(e map[string]any) string {
	for _, c := range e["choices"].([]any) {
		if text, ok := c.(map[string]any)["delta"].(map[string]any)["content"].(string); ok {
			return text
		}
	}
	return ""
}

func TestEngineGone(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless), admission: admission.Config{RunningSequencesMax: 8}})
	var wg sync.WaitGroup
	results := make(chan string, 16)
	for range 16 {
		wg.Go(func() {
			resp, err := r.try("POST", "/v1/chat/completions", chatBody(`"stream":true`))
			if err != nil {
				t.Error(err)
			}
			if resp.status == 200 {
				all := events(resp.body)
				code, _ := errorOf(t, all[len(all)-1])
				results <- "stream " + code
				return
			}
			code, _ := errorOf(t, resp.body)
			results <- fmt.Sprint(resp.status, " ", code, " ", resp.header.Get("Retry-After") != "")
		})
	}
	if !eventually(5*time.Second, func() bool {
		return r.fake.Live() == 8 && r.fifo.Load().Waiting == 8 && r.fake.State().Running == 8
	}) {
		t.Fatal("8 running and 8 waiting were not reached")
	}
	eventually(time.Second, func() bool {
		for _, rec := range r.fake.Records() {
			if rec.Dispatched && rec.Tokens == 0 {
				return false
			}
		}
		return true
	})
	r.fake.Close()
	wg.Wait()
	counts := map[string]int{}
	for range 16 {
		counts[<-results]++
	}
	if counts["stream engine_unavailable"] != 8 || counts["503 engine_unavailable true"] != 8 {
		t.Errorf("results %v", counts)
	}
	r.settled()
	if resp := r.do("GET", "/readyz", ""); resp.status != 503 {
		t.Errorf("ready: %d", resp.status)
	}
	if resp := r.do("GET", "/healthz", ""); resp.status != 200 {
		t.Errorf("health: %d", resp.status)
	}
}

func TestReadinessFollowsProgress(t *testing.T) {
	r := newRig(t, rigConfig{fake: wiretest.FakeConfig{StateInterval: 10 * time.Millisecond}, gateway: Config{Timeouts: TimeoutConfig{HeartbeatLimit: 300 * time.Millisecond}}})
	ready := func(want int) bool {
		return eventually(5*time.Second, func() bool { return r.do("GET", "/readyz", "").status == want })
	}
	if !ready(200) {
		t.Error("never ready")
	}
	r.fake.Freeze(true)
	if !ready(503) {
		t.Error("ready though the loop stands still")
	}
	r.fake.Freeze(false)
	if !ready(200) {
		t.Error("not ready again")
	}
	r.fake.SetErr(wire.Errorf(wire.Unavailable, "loading the model"))
	if resp := r.do("GET", "/readyz", ""); resp.status != 503 || !strings.Contains(resp.body, "loading the model") {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	if resp := r.chat(""); resp.status != 503 || resp.header.Get("Retry-After") == "" {
		t.Errorf("chat: %d %v", resp.status, resp.header)
	}
}

func TestDrain(t *testing.T) {
	short := wiretest.Script{Pieces: []string{"a", "b", "c", "d", "e"}, Delay: 30 * time.Millisecond}
	for name, c := range map[string]struct {
		script wiretest.Script
		limit  time.Duration
		last   string
	}{"finishes": {short, 10 * time.Second, "[DONE]"}, "is cut": {endless, 200 * time.Millisecond, "draining"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigConfig{fake: scripted(c.script)})
			idle := r.dial()
			defer idle.Close()
			io.WriteString(idle, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := readLine(bufio.NewReader(idle), "HTTP/1.1 200"); err != nil {
				t.Fatal(err)
			}
			streamed := make(chan string, 1)
			go func() { streamed <- r.raw(rawPost("/v1/chat/completions", chatBody(`"stream":true`))) }()
			eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
			r.gw.StartDraining()
			if resp := r.do("GET", "/readyz", ""); resp.status != 503 {
				t.Errorf("ready while draining: %d", resp.status)
			}
			refused := r.raw(rawPost("/v1/chat/completions", chatBody("")))
			if !strings.HasPrefix(refused, "HTTP/1.1 503") || !strings.Contains(refused, "Connection: close") || !strings.Contains(refused, `"code":"draining"`) {
				t.Errorf("new request: %s", refused)
			}
			ctx, cancel := context.WithTimeout(context.Background(), c.limit)
			defer cancel()
			if err := r.gw.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			if got := <-streamed; !strings.Contains(got, c.last) {
				t.Errorf("the stream ended with %s", got[max(0, len(got)-300):])
			}
			if _, err := idle.Read(make([]byte, 1024)); err == nil {
				if _, err = idle.Read(make([]byte, 1024)); !errors.Is(err, io.EOF) {
					t.Errorf("the idle connection is open: %v", err)
				}
			}
			r.settled()
		})
	}
}

func TestPanicIsOneRefusal(t *testing.T) {
	cfg := wiretest.FakeConfig{Script: func(*wire.Generation) wiretest.Script { return hello }, Prepare: func(context.Context, *wire.Request) *wire.Error { panic("boom") }}
	r := newRig(t, rigConfig{fake: cfg})
	resp := r.chat("")
	if code, _ := errorOf(t, resp.body); resp.status != 500 || code != "internal_error" || strings.Contains(resp.body, "boom") {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	r.settled()
}

// TestShutdownMayOvertakeServe stops a gateway whose Serve may not have begun.
func TestShutdownMayOvertakeServe(t *testing.T) {
	for range 20 {
		newRig(t, rigConfig{}).stop()
	}
}
