package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/spans/spanstest"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// checkView holds a view to its sums.
func checkView(t *testing.T, v *capture.View) {
	t.Helper()
	sum, engine, stall := 0.0, 0.0, 0.0
	for _, p := range v.Parts {
		sum += p.MS
		if p.Name == "engine_queue" || p.Name == "prefill" || p.Name == "decode" {
			engine += p.MS
		}
	}
	for _, s := range v.Stall {
		stall += s.BeforeFirstMS + s.AfterFirstMS
	}
	if math.Abs(sum-v.WallMS) > 0.001 || math.Abs(stall-engine) > 0.005 {
		t.Errorf("%s: the parts sum to %v of %v ms, the stall table to %v of %v", v.ID, sum, v.WallMS, stall, engine)
	}
}

// TestEveryRequestOverItsGoalIsKept slows each request beyond its goals.
func TestEveryRequestOverItsGoalIsKept(t *testing.T) {
	r := newRig(t, rigConfig{
		fake: scripted(wiretest.Script{Pieces: []string{"a", "b", "c"}, FirstDelay: 3 * time.Millisecond, Delay: 2 * time.Millisecond}), capture: &capture.Config{}, records: 256,
		admission: admission.Config{Classes: []admission.Class{{Name: "interactive", FirstTokenGoal: time.Minute, TokenGoal: time.Millisecond}}},
	})
	const requests = 100
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			resp, err := r.try("POST", "/v1/chat/completions", chatBody(`"stream":true`), "X-Request-Id", fmt.Sprint("slow", i))
			if err != nil || resp.status != 200 {
				t.Errorf("%v: %d", err, resp.status)
			}
		})
	}
	wg.Wait()
	r.settled()
	slow := 0
	for _, rec := range r.recorder.Last(requests) {
		if rec.TokenTime() <= float64(time.Millisecond) {
			continue // its tokens came late, and together
		}
		slow++
		v := r.kept.Find(rec.ClientID)
		if !rec.Kept || rec.Broken&telemetry.TokenGoal == 0 || v == nil || v.ID != rec.ID {
			t.Fatalf("%s: kept %v, broken %v, view %v", rec.ClientID, rec.Kept, rec.Broken.Names(), v)
		}
		checkView(t, v)
		if v.Sentence == "" || !slices.Contains(v.Reasons, "slow_token") {
			t.Errorf("%+v", v)
		}
	}
	if slow < requests/2 {
		t.Errorf("only %d of %d were slow", slow, requests)
	}
}

// TestForcedAndSampledAreKept, and a trace id of a caller is the one to look for.
func TestForcedAndSampledAreKept(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), capture: &capture.Config{}})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	r.do("POST", "/v1/chat/completions", chatBody(""), "X-Request-Id", "plain")
	r.do("POST", "/v1/chat/completions", chatBody(""), "X-Request-Id", "forced", "X-Forebay-Capture", "1")
	r.do("POST", "/v1/chat/completions", chatBody(""), "X-Request-Id", "sampled", "Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	r.settled()
	if r.kept.Find("plain") != nil {
		t.Error("a fine request was kept")
	}
	for name, reason := range map[string]string{"forced": "forced", trace: "sampled"} {
		if v := r.kept.Find(name); v == nil || !slices.Contains(v.Reasons, reason) || len(v.Steps) == 0 || v.Parts[len(v.Parts)-1].Name != "emit" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// endings are how the many requests of TestTenThousandEnds end.
var endings = []string{"ok", "ok", "stream", "two", "invalid", "fails", "leaves", "leaves late", "deadline", "unprepared", "shed"}

// TestTenThousandEnds ends requests in every way, and holds that each has one
// record, and that nothing is left.
func TestTenThousandEnds(t *testing.T) {
	requests := 10_000
	if testing.Short() {
		requests = 1000
	}
	cfg := wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
		s := wiretest.Script{Pieces: []string{"a", "b"}}
		switch {
		case strings.Contains(g.Prompt.Text, "fails"):
			s.Err = wire.Errorf(wire.NonFinite, "NaN")
		case strings.Contains(g.Prompt.Text, "leaves"), strings.Contains(g.Prompt.Text, "deadline"):
			s.Endless, s.Delay = true, time.Millisecond
		}
		return s
	}, Prepare: func(_ context.Context, q *wire.Request) *wire.Error {
		if strings.Contains(string(q.Messages), "unprepared") {
			return wire.Errorf(wire.ContextLength, "too long")
		}
		return nil
	}}
	r := newRig(t, rigConfig{fake: cfg, records: requests, capture: &capture.Config{}, admission: admission.Config{RunningSequencesMax: 12, WaitingRequestsMax: 8}})
	crashes := make(chan struct{})
	var crashing sync.WaitGroup
	crashing.Go(func() { // the engine is away for a moment, again and again
		for {
			select {
			case <-crashes:
				return
			case <-time.After(50 * time.Millisecond):
				r.fake.SetErr(wire.Errorf(wire.Unavailable, "lost"))
				time.Sleep(2 * time.Millisecond)
				r.fake.SetErr(nil)
			}
		}
	})
	var wg sync.WaitGroup
	slots := make(chan struct{}, 24)
	for i := range requests {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			endAs(t, r, endings[rand.IntN(len(endings))], fmt.Sprint("end", i))
		})
	}
	wg.Wait()
	close(crashes)
	crashing.Wait()
	r.settled()
	records := r.recorder.Last(requests + 1)
	ids, outcomes := map[string]bool{}, map[string]int{}
	for i := range records {
		rec := &records[i]
		ids[rec.ClientID] = true
		outcomes[rec.Outcome.String()]++
		if rec.Finished < rec.Arrived || rec.Finished == 0 {
			t.Fatalf("%+v", rec)
		}
	}
	if len(records) != requests || len(ids) != requests || r.metric("forebay_requests_total") != float64(requests) {
		t.Errorf("%d records of %d requests, of %d names, %v counted: %v", len(records), requests, len(ids), r.metric("forebay_requests_total"), outcomes)
	}
	for _, o := range []string{"ok", "invalid", "context_length", "non_finite", "client_gone", "deadline_exceeded"} {
		if outcomes[o] == 0 {
			t.Errorf("nothing ended as %s: %v", o, outcomes)
		}
	}
	for _, v := range r.kept.List() {
		checkView(t, v)
	}
	if len(r.gw.running()) != 0 {
		t.Error("some still run")
	}
}

// endAs sends a whole request and waits for its answer, or leaves.
func endAs(t *testing.T, r *rig, how, id string) {
	fields, headers := "", []string{"X-Request-Id: " + id, "Connection: close"}
	switch how {
	case "stream", "leaves", "leaves late":
		fields = `"stream":true,"max_tokens":200`
	case "two":
		fields = `"n":2`
	case "invalid":
		fields = `"n":0`
	case "deadline":
		headers = append(headers, "X-Forebay-Deadline-Ms: 3")
	case "shed":
		headers = append(headers, "X-Forebay-Class: offline")
	}
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, rawPost("/v1/chat/completions", strings.Replace(chatBody(fields), `"hi"`, `"`+how+`"`, 1), headers...)); err != nil {
		t.Error(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	switch how {
	case "leaves":
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	case "leaves late":
		_, _ = io.ReadFull(c, make([]byte, 200+rand.IntN(1500)))
	default:
		if b, err := io.ReadAll(c); err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 ")) {
			t.Errorf("%s: %v: %q", how, err, b)
		}
	}
}

// panics is a ticket whose holder panics at its first token.
type panics struct{ admission.Ticket }

func (panics) Progress(int) { panic("boom") }

type panicking struct{ admission.Controller }

func (p panicking) Admit(w admission.Demand) (admission.Ticket, error) {
	t, err := p.Controller.Admit(w)
	return panics{t}, err
}

// TestEveryStageEnds cancels at each stage, and lets the stream's writer
// panic: each has one record, and one tree whose spans have all ended.
//
// Case H07.
func TestEveryStageEnds(t *testing.T) {
	for _, stage := range []string{"body", "preparing", "queued", "prefill", "streaming", "panic"} {
		t.Run(stage, func(t *testing.T) {
			collector := spanstest.New(t)
			exporter, err := spans.New(spans.Config{Endpoint: collector.GRPC})
			if err != nil {
				t.Fatal(err)
			}
			cfg := wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
				return wiretest.Script{Hang: stage == "prefill" || stage == "queued", Endless: true, Delay: time.Millisecond}
			}, Prepare: func(ctx context.Context, _ *wire.Request) *wire.Error {
				if stage == "preparing" {
					<-ctx.Done()
				}
				return nil
			}}
			r := newRig(t, rigConfig{fake: cfg, capture: &capture.Config{}, exporter: exporter, admission: admission.Config{RunningSequencesMax: 1}})
			if stage == "panic" {
				r.gw.admission = panicking{r.fifo}
			}
			if stage == "queued" {
				holder := r.dial()
				defer holder.Close()
				io.WriteString(holder, rawPost("/v1/chat/completions", chatBody("")))
				eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
			}
			c := r.dial()
			defer c.Close()
			request := rawPost("/v1/chat/completions", chatBody(`"stream":true`), "X-Request-Id: one", "X-Forebay-Capture: 1")
			if stage == "body" {
				request = request[:len(request)-10]
			}
			io.WriteString(c, request)
			if !eventually(3*time.Second, func() bool { return r.reached(stage) }) {
				t.Fatal("the stage was not reached")
			}
			if stage != "panic" {
				c.Close()
			}
			if !eventually(3*time.Second, func() bool { return len(r.recorder.Last(4)) == 1 }) {
				t.Fatalf("%d records", len(r.recorder.Last(4)))
			}
			rec := r.recorder.Last(1)[0]
			if stage == "body" { // it never came whole, so it is not kept
				if rec.Outcome != telemetry.ClientGone {
					t.Errorf("it ended as %s", rec.Outcome)
				}
				return
			}
			var v *capture.View // it counts as running until a moment after its record is finished
			eventually(3*time.Second, func() bool { v = r.kept.Find("one"); return v != nil && !v.Running })
			if v == nil || v.Running || v.Outcome != rec.Outcome.String() || v.CompletionTokens != rec.CompletionTokens {
				t.Fatalf("%+v", v)
			}
			checkView(t, v)
			exporter.Close()
			checkEnded(t, collector.Spans(), v, map[string]string{"preparing": "prepare", "queued": "queue", "prefill": "engine fake", "streaming": "decode", "panic": "decode"}[stage])
		})
	}
}

// reached tells that the request of a stage is in it, or is over.
func (r *rig) reached(stage string) bool {
	switch live := r.gw.running(); stage {
	case "body":
		time.Sleep(20 * time.Millisecond)
		return true
	case "preparing":
		return len(live) == 1
	case "queued":
		return r.fifo.Load().Waiting == 1
	case "prefill":
		return r.fake.Live() == 1
	case "streaming":
		return len(live) == 1 && live[0].FirstToken != 0
	}
	return len(r.recorder.Last(1)) == 1
}

// checkEnded holds the tree of a view to one root, to spans that have ended
// within it, and to the one that the request ended in.
func checkEnded(t *testing.T, all []spanstest.Span, v *capture.View, last string) {
	t.Helper()
	roots, found := 0, false
	names := []string{}
	for i := range all {
		s := &all[i]
		if s.End < s.Begin || s.End == 0 {
			t.Errorf("the span %s has not ended", s.Name)
		}
		if s.TraceID != v.TraceID {
			continue // a step's
		}
		names = append(names, s.Name)
		found = found || s.Name == last
		if s.ID == v.SpanID {
			roots++
		}
	}
	if roots != 1 || !found {
		t.Errorf("%d roots, and of %v one should be %s", roots, names, last)
	}
}

// TestTextsAreNowhere sends a canary as prompt and as answer, and looks for it
// in everything that is kept, shown, logged or sent.
func TestTextsAreNowhere(t *testing.T) {
	const canary = "xylophone"
	collector := spanstest.New(t)
	exporter, err := spans.New(spans.Config{Endpoint: collector.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	var fail atomic.Bool
	cfg := wiretest.FakeConfig{Script: func(*wire.Generation) wiretest.Script {
		s := wiretest.Script{Pieces: []string{canary, " ", canary}}
		if fail.Load() {
			s.Err = wire.Errorf(wire.Internal, "the engine met "+"trouble")
		}
		return s
	}}
	r := newRig(t, rigConfig{fake: cfg, capture: &capture.Config{DiskFolder: folder}, exporter: exporter, logged: true})
	body := strings.Replace(chatBody(`"stream":true,"user":"`+canary+`","stop":["`+canary+`!"]`), `"hi"`, `"`+canary+`"`, 1)
	for i := range 4 {
		fail.Store(i%2 == 1)
		path, send := "/v1/chat/completions", body
		if i > 1 {
			path, send = "/v1/completions", strings.Replace(textBody(""), `"hi"`, `"`+canary+`"`, 1)
		}
		resp := r.do("POST", path, send, "X-Forebay-Capture", "1", "X-Request-Id", fmt.Sprint("c", i))
		if i == 0 && !strings.Contains(resp.body, canary) {
			t.Fatal("the answer has no canary")
		}
		r.client.CloseIdleConnections() // a stream that broke ends its connection
	}
	r.do("POST", "/v1/chat/completions", strings.Replace(body, `"stream":true`, `"n":-1`, 1), "X-Forebay-Capture", "1")
	r.settled()
	where := map[string]string{}
	for i, v := range r.kept.List() {
		b, _ := json.Marshal(v)
		where[fmt.Sprint("view ", i)], where[fmt.Sprint("trace ", i)] = string(b), string(v.Trace())
		for _, page := range []string{"/debug/requests/" + v.ID, "/debug/requests/" + v.ID + "?format=json"} {
			where[page] = r.adminPage(page)
		}
	}
	for _, page := range []string{"/metrics", "/debug/requests", "/debug/requests?format=json", "/debug/steps", "/debug/queue"} {
		where[page] = r.adminPage(page)
	}
	for _, rec := range r.recorder.Last(16) {
		where["record "+rec.ID] = fmt.Sprintf("%+v", rec)
	}
	exporter.Close()
	where["spans"] = fmt.Sprintf("%+v", collector.Spans())
	r.stop()
	r.kept.Close()
	where["log"] = r.logs.String()
	files, _ := filepath.Glob(filepath.Join(folder, "*"))
	for _, name := range files {
		b, _ := os.ReadFile(name)
		where["disk"] += string(b)
	}
	for name, text := range where {
		if len(text) < 10 {
			t.Errorf("%s is empty", name)
		}
		if strings.Contains(text, canary) {
			t.Errorf("%s has the canary", name)
		}
	}
	if len(where) < 18 {
		t.Errorf("only %d places were looked at", len(where))
	}
}

func (r *rig) adminPage(path string) string {
	resp, err := http.Get("http://" + r.admin + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}
