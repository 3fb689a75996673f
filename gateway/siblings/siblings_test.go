package siblings

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/storetest"
	"github.com/forebay-io/forebay/internal/wire"
)

const ms = time.Millisecond

var choosing = Config{GainMin: 20 * ms, FreshLimit: 500 * ms}

func TestChoose(t *testing.T) {
	for name, c := range map[string]struct {
		here     time.Duration
		possible bool
		all      []Candidate
		to       string
		why      Why
	}{
		"alone":                           {100 * ms, true, nil, "", WhyAlone},
		"here is soonest":                 {100 * ms, true, []Candidate{{Name: "a", FirstToken: 150 * ms, Age: 0}}, "", WhySoonest},
		"the gain is too small":           {100 * ms, true, []Candidate{{Name: "a", FirstToken: 81 * ms, Age: 0}}, "", WhySoonest},
		"there is sooner":                 {100 * ms, true, []Candidate{{Name: "a", FirstToken: 150 * ms, Age: 0}, {Name: "b", FirstToken: 79 * ms, Age: 0}}, "b", WhySooner},
		"of a long wait a tenth must go":  {10 * time.Second, true, []Candidate{{Name: "a", FirstToken: 9100 * ms, Age: 0}}, "", WhySoonest},
		"a long wait, much sooner":        {10 * time.Second, true, []Candidate{{Name: "a", FirstToken: 8900 * ms, Age: 0}}, "a", WhySooner},
		"not here":                        {0, false, []Candidate{{Name: "a", FirstToken: time.Hour, Age: 0}}, "a", WhyNoWay},
		"nowhere":                         {0, false, nil, "", WhyAlone},
		"old reports are the last resort": {100 * ms, true, []Candidate{{Name: "old", FirstToken: ms, Age: time.Second}, {Name: "a", FirstToken: 50 * ms, Age: 0}}, "a", WhySooner},
		"only old reports":                {100 * ms, true, []Candidate{{Name: "old", FirstToken: ms, Age: time.Second}}, "old", WhySooner},
	} {
		got := Choose(Candidate{FirstToken: c.here, Work: c.here}, c.possible, c.all, 50*ms, &choosing, rand.IntN)
		to := ""
		if got.To != nil {
			to = got.To.Name
		}
		if to != c.to || got.Why != c.why {
			t.Errorf("%s: to %q, %v; want %q, %v", name, to, got.Why, c.to, c.why)
		}
	}
}

// Many gateways with a request each: those that are alike share them, and two taken
// at random of old reports are far better than all on the one that seemed soonest.
func TestNobodyHerds(t *testing.T) {
	const gateways = 1000
	count := func(all []Candidate) map[string]int {
		n := map[string]int{}
		for range gateways {
			n[Choose(Candidate{FirstToken: time.Second}, true, all, time.Hour, &choosing, rand.IntN).To.Name]++
		}
		return n
	}
	var alike, old []Candidate
	for i := range 10 {
		alike = append(alike, Candidate{Name: fmt.Sprint(i), FirstToken: 100*ms + time.Duration(i)*100*time.Microsecond, Age: 0})
		old = append(old, Candidate{Name: fmt.Sprint(i), FirstToken: 100*ms + time.Duration(i)*20*ms, Age: time.Second})
	}
	for name, n := range count(alike) {
		if n > gateways/5 {
			t.Errorf("%d of %d chose %s of ten that are alike", n, gateways, name)
		}
	}
	n := count(old)
	if n["0"] > gateways*3/10 || n["0"] < gateways/10 || len(n) < 8 {
		t.Errorf("by old reports %v", n)
	}
}

// Two replicas that are alike do not exchange their requests, whatever their noise.
func TestHysteresis(t *testing.T) {
	for range 1000 {
		here, there := 100*ms+time.Duration(rand.IntN(int(15*ms))), 100*ms+time.Duration(rand.IntN(int(15*ms)))
		if got := Choose(Candidate{FirstToken: here}, true, []Candidate{{Name: "a", FirstToken: there, Age: 0}}, 50*ms, &choosing, rand.IntN); got.To != nil {
			t.Fatalf("here %v, there %v: it goes there", here, there)
		}
	}
}

func TestSignatures(t *testing.T) {
	secret, now := []byte("0123456789abcdef"), time.UnixMilli(1_000_000_000)
	s := sign(secret, HopPath, "b", []byte("body"), now)
	for name, c := range map[string]struct {
		secret, signature, path, to, body string
		at                                time.Duration
		ok                                bool
	}{
		"right":          {string(secret), s, HopPath, "b", "body", time.Minute, true},
		"another secret": {"0123456789abcdeF", s, HopPath, "b", "body", 0, false},
		"no secret":      {"", s, HopPath, "b", "body", 0, false},
		"another path":   {string(secret), s, CancelPath, "b", "body", 0, false},
		"for another":    {string(secret), s, HopPath, "c", "body", 0, false},
		"another body":   {string(secret), s, HopPath, "b", "Body", 0, false},
		"late":           {string(secret), s, HopPath, "b", "body", 3 * time.Minute, false},
		"early":          {string(secret), s, HopPath, "b", "body", -3 * time.Minute, false},
		"another time":   {string(secret), "1" + s, HopPath, "b", "body", 0, false},
		"rubbish":        {string(secret), "x", HopPath, "b", "body", 0, false},
		"none":           {string(secret), "", HopPath, "b", "body", 0, false},
	} {
		if err := verify([]byte(c.secret), c.signature, c.path, c.to, []byte(c.body), now.Add(c.at)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func parcel() *Parcel {
	return &Parcel{From: "a", ID: "x", Tenant: "t", Class: "interactive", LeftMS: 5, Generation: &wire.Generation{
		ID: "x", Salt: "t", Options: wire.Options{N: 1, MaxTokens: 4, Seed: 7}, Prompt: &wire.Prompt{Tokens: []int32{1, 2, 3}, Room: 9},
		Trace: wire.TraceContext{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1},
	}}
}

func TestParcels(t *testing.T) {
	b := parcel().Append(nil)
	p, err := ReadParcel(b)
	if err != nil || p.Tenant != "t" || p.Generation.Options.Seed != 7 || len(p.Generation.Prompt.Tokens) != 3 || p.LeftMS != 5 {
		t.Fatalf("%+v, %v", p, err)
	}
	for n := range b {
		if _, err := ReadParcel(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a parcel", n, len(b))
		}
	}
	empty := parcel()
	empty.Generation.Prompt.Tokens = nil
	if _, err := ReadParcel(empty.Append(nil)); err == nil {
		t.Error("a parcel without a prompt was taken")
	}
}

func TestConfig(t *testing.T) {
	for text, c := range map[string]Config{
		"":                        {},
		"need siblings.store":     {Name: "a"},
		"siblings.name":           {Store: "redis://h", Listen: ":0"},
		"unlike the names":        {Store: "redis://h", Listen: ":0", Name: "a b"},
		"no braces":               {Store: "redis://h", Listen: ":0", Name: "a", Prefix: "{x}"},
		"siblings.advertise: \"h": {Store: "redis://h", Listen: ":0", Name: "a", Advertise: "h"},
	} {
		err := c.Mistakes()
		if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%+v: %v, want %q", c, err, text)
		}
	}
	short := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(short, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecret(short); err == nil {
		t.Error("a secret of 5 bytes was taken")
	}
}

// idle is a replica with nothing to do.
type idle struct{ price float64 }

func (i idle) Load() admission.Load { return admission.Load{} }

func (i idle) Outlook() admission.Outlook {
	return admission.Outlook{Cost: cost.Cost{PrefillToken: i.price}, Chunk: 512, LongPrefill: time.Hour, Classes: []admission.ClassOutlook{{Name: "interactive", ShortRate: 1, LongRate: 1, Open: true}}}
}

// pair is a Group, and a sibling whose answers a test writes.
func pair(t *testing.T, answer http.HandlerFunc) (*Group, *Candidate) {
	t.Helper()
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	sibling := httptest.NewServer(answer)
	t.Cleanup(sibling.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name, advertise string) *Group {
		cfg := Config{
			Store: "redis://" + server.Address, Prefix: "test", Name: name, Advertise: advertise, SecretFile: secret, Interval: 10 * ms, CallLimit: time.Second, Lease: 3 * time.Second,
			GrainTokens: 16, BlocksMax: 1024, ChangesMax: 1024, LogMax: 100, ReportsMax: 32, HopCost: ms, GainMin: ms, FreshLimit: time.Second, ConnectLimit: time.Second,
			SilenceLimit: 1500 * ms, AvoidFor: time.Minute, HopsMax: 4,
		}
		g, err := Open(cfg, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, idle{1000}, "test", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Close)
		g.Heard(&wire.State{Model: wire.Model{ID: "m", Fingerprint: "f", PageTokens: 16}})
		return g
	}
	g := open("a", "")
	open("b", strings.TrimPrefix(sibling.URL, "http://"))
	storetest.Eventually(t, "a knows b", func() bool { v := g.View(); return len(v.Siblings) == 1 && v.Siblings[0].Ready })
	return g, &Candidate{Name: "b"}
}

// drain reads a stream to its end.
func drain(t *testing.T, s *wire.Stream, notify chan struct{}) (events []wire.Event) {
	t.Helper()
	late := time.After(5 * time.Second)
	for {
		events = s.Take(events)
		if n := len(events); n > 0 && events[n-1].End != nil {
			s.Close()
			return events
		}
		select {
		case <-notify:
		case <-late:
			t.Fatal("the stream has no end")
		}
	}
}

func writeEvent(w io.Writer, e wire.Event) {
	fmt.Fprintf(w, "data: %s\n\n", base64.StdEncoding.EncodeToString(wire.AppendEvent(nil, &e)))
	w.(http.Flusher).Flush()
}

// Whatever a sibling answers, the stream ends, and says whether a token came.
func TestHopsEnd(t *testing.T) {
	release := make(chan struct{})
	answers := map[string]http.HandlerFunc{
		"well": func(w http.ResponseWriter, r *http.Request) {
			writeEvent(w, wire.Event{Text: "hi", TokenCount: 1})
			writeEvent(w, wire.Event{Finish: wire.FinishStop, TokenCount: 1})
			writeEvent(w, wire.Event{End: &wire.End{Usage: wire.Usage{Prompt: 3, Completion: 1}}})
		},
		"full":    func(w http.ResponseWriter, r *http.Request) { http.Error(w, "full", http.StatusServiceUnavailable) },
		"refused": func(w http.ResponseWriter, r *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) },
		"rubbish": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "data: %%%\n\n") },
		"no event": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "data: "+base64.StdEncoding.EncodeToString([]byte{1, 2, 3})+"\n\n")
		},
		"endless line": func(w http.ResponseWriter, r *http.Request) {
			junk := bytes.Repeat([]byte("x"), 1<<20)
			for range 8 {
				w.Write(junk)
			}
		},
		"cut": func(w http.ResponseWriter, r *http.Request) {
			writeEvent(w, wire.Event{Text: "hi", TokenCount: 1})
			panic(http.ErrAbortHandler)
		},
		"empty":  func(w http.ResponseWriter, r *http.Request) {},
		"silent": func(w http.ResponseWriter, r *http.Request) { <-release },
		"silent later": func(w http.ResponseWriter, r *http.Request) {
			writeEvent(w, wire.Event{Text: "hi", TokenCount: 1})
			<-release
		},
		"alive and slow": func(w http.ResponseWriter, r *http.Request) {
			for range 5 {
				time.Sleep(400 * ms)
				io.WriteString(w, ": beat\n\n")
				w.(http.Flusher).Flush()
			}
			writeEvent(w, wire.Event{End: &wire.End{Usage: wire.Usage{Prompt: 3}}})
		},
	}
	var kind atomic.Value
	g, to := pair(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := verify([]byte("0123456789abcdef"), r.Header.Get(SignatureHeader), r.URL.Path, "b", body, time.Now()); err != nil {
			t.Error(err)
		}
		if p, err := ReadParcel(body); err != nil || p.Generation.Trace.TraceID[0] != 1 || !strings.HasPrefix(r.Header.Get("Traceparent"), "00-01") {
			t.Errorf("%+v, %v, %q", p, err, r.Header.Get("Traceparent"))
		}
		answers[kind.Load().(string)](w, r)
	})
	defer close(release)
	for name := range answers {
		kind.Store(name)
		g.mu.Lock()
		g.peers["b"].avoid = time.Time{}
		g.mu.Unlock()
		notify := make(chan struct{}, 1)
		events := drain(t, g.Send(to, parcel(), notify), notify)
		end := events[len(events)-1].End
		well := name == "well" || name == "alive and slow"
		if well != (end.Err == nil) || !well && end.Err.Kind != wire.Unavailable {
			t.Errorf("%s: %+v", name, end)
		}
		if tokens := name == "well" || name == "cut" || name == "silent later"; tokens != (len(events) > 1) {
			t.Errorf("%s: %d events", name, len(events))
		}
		if avoided := g.View().Siblings[0].Avoided; avoided == (well || name == "full") {
			t.Errorf("%s: avoided %v", name, avoided)
		}
	}
}

// A canceled hop asks the sibling what it has computed. A reader who takes nothing
// holds up the sibling, and loses nothing.
func TestHopsWaitAndCancel(t *testing.T) {
	canceled := make(chan struct{})
	sent := make(chan int, 1)
	g, to := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == CancelPath {
			close(canceled)
			return
		}
		for i := 1; i <= 200; i++ {
			writeEvent(w, wire.Event{Text: "x", TokenCount: i})
		}
		sent <- 200
		<-canceled
		writeEvent(w, wire.Event{End: &wire.End{Err: wire.Errorf(wire.Canceled, "canceled"), Usage: wire.Usage{Prompt: 3, Computed: 2, Completion: 200}}})
	})
	notify := make(chan struct{}, 1)
	s := g.Send(to, parcel(), notify)
	<-sent
	time.Sleep(20 * ms)
	if n := s.Waiting(); n > windowEvents {
		t.Errorf("%d events wait, over the window", n)
	}
	var got []wire.Event
	for len(got) < 150 {
		got = s.Take(got)
		time.Sleep(ms)
	}
	for i, e := range got {
		if e.TokenCount != i+1 {
			t.Fatalf("event %d has %d tokens", i, e.TokenCount)
		}
	}
	s.Cancel()
	events := drain(t, s, notify)
	if end := events[len(events)-1].End; end.Err == nil || end.Err.Kind != wire.Canceled || end.Usage.Computed != 2 || end.Usage.Completion != 200 {
		t.Errorf("the end is %+v", end)
	}
}

// A sibling that believes to be slow, and has proved nothing, is taken for no slower
// than the others; so is this replica.
func TestUnprovenPrices(t *testing.T) {
	slow, quick := idle{1e6}.Outlook(), idle{1000}.Outlook()
	q := &Query{Class: "interactive", PromptTokens: 1000}
	prices := []*admission.Outlook{&slow, &quick}
	if got := workOf(&slow, false, prices, q, 0); got != quick.Work("interactive", 1000, 0) {
		t.Errorf("unproven: %v", got)
	}
	if got := workOf(&slow, true, prices, q, 0); got != time.Second {
		t.Errorf("proven: %v", got)
	}
	var p pace
	now := time.Now()
	if p.heard(2000, now); p.proven(now) {
		t.Error("2000 tokens are no proof")
	}
	if p.heard(2100, now); !p.proven(now) || p.proven(now.Add(time.Minute)) {
		t.Error("2100 tokens prove for some seconds")
	}
	if p.heard(5, now); p.proven(now) {
		t.Error("another engine has proved nothing")
	}
}
