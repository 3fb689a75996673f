package gateway

import (
	"bufio"
	"context"
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

func TestLeavingFreesThePlace(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless), admission: admission.Config{RunningSequencesMax: 1}})
	c := r.dial()
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true,"max_tokens":2000`)))
	br := bufio.NewReader(c)
	for range 3 {
		if _, err := readLine(br, "data: "); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if resp := r.do("POST", "/v1/chat/completions", chatBody(`"max_tokens":1`)); resp.status != 200 {
		t.Errorf("second: %d %s", resp.status, resp.body)
	}
	r.settled()
	if rec := r.fake.Records()[0]; !rec.Canceled || rec.Tokens > 1000 {
		t.Errorf("record %+v", rec)
	}
}

// leaving is a client that goes away in one state of its request.
type leaving struct {
	path, body string
	full       bool // the only place is taken, so that it waits
	preparing  bool
}

// TestLeavingInEveryState has one client leave in each state, by close and by
// half-close, which means the same.
func TestLeavingInEveryState(t *testing.T) {
	const chat = "/v1/chat/completions"
	for name, l := range map[string]leaving{
		"preparing":       {path: chat, body: strings.Replace(chatBody(""), "hi", "slowprepare", 1), preparing: true},
		"queued":          {path: chat, body: chatBody(""), full: true},
		"queued stream":   {path: chat, body: chatBody(`"stream":true`), full: true},
		"prefill":         {path: chat, body: strings.Replace(chatBody(""), "hi", "prefill", 1)},
		"prefill stream":  {path: chat, body: strings.Replace(chatBody(`"stream":true`), "hi", "prefill", 1)},
		"plain":           {path: chat, body: chatBody(`"max_tokens":4000`)},
		"several choices": {path: chat, body: chatBody(`"n":3,"max_tokens":4000`)},
		"several prompts": {path: "/v1/completions", body: `{"model":"fake","prompt":["a","b"],"n":2,"max_tokens":4000}`},
	} {
		t.Run(name+" by close", func(t *testing.T) { l.run(t, func(c *net.TCPConn) { c.Close() }) })
		t.Run(name+" by half-close", func(t *testing.T) { l.run(t, func(c *net.TCPConn) { c.CloseWrite() }) })
	}
}

func (l leaving) run(t *testing.T, leave func(*net.TCPConn)) {
	preparing := make(chan struct{}, 1)
	cfg := wiretest.FakeConfig{
		Script: func(g *wire.Generation) wiretest.Script {
			if strings.Contains(g.Prompt.Text, "prefill") {
				return wiretest.Script{Hang: true}
			}
			return endless
		},
		Prepare: func(ctx context.Context, q *wire.Request) *wire.Error {
			if strings.Contains(string(q.Messages), "slowprepare") {
				preparing <- struct{}{}
				<-ctx.Done()
			}
			return nil
		},
	}
	places := 64
	if l.full {
		places = 1
	}
	r := newRig(t, rigConfig{fake: cfg, admission: admission.Config{RunningSequencesMax: places}})
	holder := r.dial()
	defer holder.Close()
	if l.full {
		io.WriteString(holder, rawPost("/v1/chat/completions", chatBody(`"max_tokens":4000`)))
		eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
	}
	client := r.dial()
	defer client.Close()
	io.WriteString(client, rawPost(l.path, l.body))
	reached := eventually(3*time.Second, func() bool {
		switch {
		case l.full:
			return r.fifo.Load().Waiting == 1
		case l.preparing:
			return len(preparing) == 1
		}
		return r.fake.Live() > 0
	})
	if !reached {
		t.Fatal("the state was not reached")
	}
	leave(client.(*net.TCPConn))
	if l.full && !eventually(3*time.Second, func() bool { return r.fifo.Load().Waiting == 0 && r.gw.InFlight() == 1 }) {
		t.Error("the waiting place was not freed while the other request ran")
	}
	holder.Close()
	r.settled()
	if o := r.lastOutcome(); o != "client_gone" {
		t.Errorf("outcome %s", o)
	}
}

func TestSlowReadersAreCutAndSteadyOnesAreNot(t *testing.T) {
	cfg := wiretest.FakeConfig{Model: wire.Model{ID: "fake", Chat: true, ContextTokens: 1 << 20}, Script: func(g *wire.Generation) wiretest.Script {
		if strings.Contains(g.Prompt.Text, "flood") {
			return wiretest.Script{Endless: true, Pieces: []string{strings.Repeat("x", 64<<10)}}
		}
		pieces := make([]string, 20)
		for i := range pieces {
			pieces[i] = "t"
		}
		return wiretest.Script{Pieces: pieces, Delay: 40 * time.Millisecond}
	}}
	r := newRig(t, rigConfig{records: 64, fake: cfg, gateway: Config{Timeouts: TimeoutConfig{WriteStallLimit: 300 * time.Millisecond}}})
	var stalled []net.Conn
	for range 20 {
		c := r.dial()
		c.(*net.TCPConn).SetReadBuffer(4096)
		io.WriteString(c, rawPost("/v1/chat/completions", strings.Replace(chatBody(`"stream":true`), "hi", "flood", 1)))
		stalled = append(stalled, c)
	}
	all := events(r.chat(`"stream":true`).body)
	if len(all) != 23 || all[22] != "[DONE]" {
		t.Errorf("%d events", len(all))
	}
	r.settled()
	stalls := 0
	for _, rec := range r.recorder.Last(40) {
		if rec.Outcome.String() == "write_stall" {
			stalls++
		}
	}
	if stalls != len(stalled) {
		t.Errorf("%d of %d stalled readers were cut for it", stalls, len(stalled))
	}
	for _, c := range stalled {
		c.Close()
	}
}

// TestAReaderHiddenBySocketBuffersIsSeen: no write blocks, since the socket takes the
// whole answer, and yet the client has not read it.
func TestAReaderHiddenBySocketBuffersIsSeen(t *testing.T) {
	pieces := make([]string, 20)
	for i := range pieces {
		pieces[i] = strings.Repeat("x", 8<<10)
	}
	r := newRig(t, rigConfig{records: 8, fake: wiretest.FakeConfig{Model: wire.Model{ID: "fake", Chat: true, ContextTokens: 1 << 20},
		Script: func(*wire.Generation) wiretest.Script {
			return wiretest.Script{Pieces: pieces, Delay: 10 * time.Millisecond}
		}}})
	c := r.dial()
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(4096)
	io.WriteString(c, rawPost("/v1/chat/completions", chatBody(`"stream":true`)))
	eventually(5*time.Second, func() bool { return len(r.recorder.Last(1)) == 1 })
	if rec := r.recorder.Last(1)[0]; rec.Outcome.String() != "ok" || rec.Blocked > 100*time.Millisecond || rec.Unread < 50<<10 || rec.Stalled < 50*time.Millisecond {
		t.Errorf("it ended as %v, blocked %v, %d bytes unread, stalled for %v", rec.Outcome, rec.Blocked, rec.Unread, rec.Stalled)
	}
	r.chat(`"stream":true`)
	r.settled()
	if rec := r.recorder.Last(1)[0]; rec.Stalled > 50*time.Millisecond {
		t.Errorf("a client that reads: %d bytes unread, stalled for %v", rec.Unread, rec.Stalled)
	}
}

// TestRandomDisconnects is the proof of cancellation: clients leave at
// random moments in random states, and nothing of them stays.
func TestRandomDisconnects(t *testing.T) {
	cfg := wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
		switch rand.IntN(4) {
		case 0:
			return wiretest.Script{Hang: true}
		case 1:
			return wiretest.Script{Endless: true, FirstDelay: 3 * time.Millisecond, Delay: time.Millisecond}
		case 2:
			return hello
		}
		return wiretest.Script{Endless: true, Delay: time.Millisecond}
	}, Prepare: func(ctx context.Context, _ *wire.Request) *wire.Error {
		if rand.IntN(8) == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Millisecond):
			}
		}
		return nil
	}}
	r := newRig(t, rigConfig{fake: cfg, records: 2048, admission: admission.Config{RunningSequencesMax: 24}})
	r.do("GET", "/healthz", "")
	r.client.CloseIdleConnections()
	time.Sleep(20 * time.Millisecond)
	fds, routines := fdCount(t), goroutines()
	bodies := []string{
		chatBody(`"stream":true`), chatBody(""), chatBody(`"n":3`), chatBody(`"stream":true,"n":2`),
		`{"model":"fake","prompt":["a","b"],"stream":true}`, `{"model":"fake","prompt":["a","b"],"n":2}`, chatBody(`"n":0`),
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for range 1000 {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			body := bodies[rand.IntN(len(bodies))]
			path := "/v1/chat/completions"
			if strings.Contains(body, `"prompt"`) {
				path = "/v1/completions"
			}
			leaveAtRandom(r.addr, rawPost(path, body))
		})
	}
	wg.Wait()
	r.settled()
	ok := eventually(10*time.Second, func() bool { return fdCount(t) <= fds+5 && goroutines() <= routines+5 })
	if !ok {
		t.Errorf("%d descriptors and %d goroutines, %d and %d before", fdCount(t), goroutines(), fds, routines)
	}
	ids := map[string]bool{}
	records := r.recorder.Last(2048)
	for _, rec := range records {
		ids[rec.ID] = true
	}
	// Some were cut before their first byte, or reset before they were read.
	if n := len(records); n < 500 || n > 1000 || len(ids) != n || r.metric("forebay_requests_total") != float64(n) {
		t.Errorf("%d records of %d requests, %v counted", n, len(ids), r.metric("forebay_requests_total"))
	}
	if s := r.fake.State(); s.PagesUsed != 0 || s.Running != 0 || s.Waiting != 0 || s.Paused != 0 {
		t.Errorf("the engine still holds %+v", s)
	}
}

func leaveAtRandom(addr, request string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	if rand.IntN(10) == 0 {
		request = request[:rand.IntN(len(request))]
	}
	io.WriteString(c, request)
	time.Sleep(time.Duration(rand.IntN(12000)) * time.Microsecond)
	switch rand.IntN(4) {
	case 0:
		c.(*net.TCPConn).SetLinger(0) // reset
	case 1:
		c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
		_, _ = io.Copy(io.Discard, c)
	case 2:
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(rand.IntN(10)) * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
	}
}
