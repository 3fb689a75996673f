package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// hostile serves each connection with say, after an exchange of hellos
// (unless greet is false), and keeps it open until the peer closes.
func hostile(t *testing.T, greet bool, say func() []byte) *Client {
	t.Helper()
	ln, err := Listen(filepath.Join(t.TempDir(), "e.sock"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r := newFrameReader(conn, 1<<20)
			if greet {
				readHello(r)
				conn.Write(appendJSONFrame(nil, frameHello, &hello{Protocol: protocolVersion, ClockNs: Monotonic(), State: &State{}}))
				r.next() // a dispatch
			}
			conn.Write(say())
			conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	c, err := NewClient(Config{Path: ln.Addr().String(), ReconnectMin: time.Minute, ReconnectMax: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); ln.Close(); <-done })
	return c
}

func frame(kind byte, payload []byte) []byte {
	return endFrame(append(beginFrame(nil, kind), payload...), 0)
}

// negativeRate is a step frame whose state has a negative cost.
func negativeRate() []byte {
	return appendState(appendBool(nil, true), &State{Pace: Pace{Cost: cost.Cost{Base: -1}}})
}

func steps(events ...Event) []byte {
	b := appendBool(nil, false)
	for i := range events {
		b = appendEvent(b, uint64(1-min(i, 1)), &events[i])
	}
	return frame(frameStep, b)
}

func TestClientEndsOnHostileEngines(t *testing.T) {
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"huge length":            {[]byte{0xff, 0xff, 0xff, 0xff, frameStep}, "outside the limit"},
		"unknown type":           {frame(99, nil), "unknown frame type 99"},
		"a gateway's frame":      {appendIDFrame(nil, frameCancel, 1), "unknown frame type"},
		"unknown choice":         {steps(Event{Choice: 1}), "choice 1 of sequence 1"},
		"negative choice":        {steps(Event{Choice: -1}), "choice -1 of sequence 1"},
		"after the finish":       {steps(Event{Finish: FinishStop}, Event{}), "after the finish"},
		"token count falls":      {steps(Event{TokenCount: 2}, Event{TokenCount: 1}), "from 2 to 1"},
		"sequence not live":      {frame(frameStep, appendEvent(appendBool(nil, false), 2, &Event{})), "sequence 2, which is not live"},
		"over the window":        {steps(make([]Event, 257)...), "window of 256"},
		"far over the window":    {steps(make([]Event, 1000)...), "room for"},
		"broken text":            {frame(frameStep, append(appendBool(nil, false), 1, eventText, 0, 0, 1, 0xff)), "UTF-8"},
		"reply not asked for":    {appendPromptReply(nil, &promptReply{Prepare: 9, Prompt: &Prompt{}}), "not asked"},
		"cost is not a number":   {frame(frameStep, negativeRate()), "negative or not finite"},
		"list longer than frame": {frame(framePromptReply, binary.AppendUvarint([]byte{1, 0}, 1<<40)), "a list of"},
		"trailing bytes":         {frame(frameRefuse, append(appendError(nil, Errorf(Internal, "x")), 1)), "follow the end"},
	} {
		t.Run(name, func(t *testing.T) {
			client := hostile(t, true, func() []byte { return c.bytes })
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := client.WaitReady(ctx); err != nil {
				t.Fatal(err)
			}
			notify := make(chan struct{}, 1)
			s := client.Generate(&Generation{Prompt: &Prompt{Tokens: []int32{1}}, Options: Options{N: 1}, Notify: notify})
			defer s.Close()
			var end *End
			for end == nil {
				select {
				case <-notify:
				case <-ctx.Done():
					t.Fatal("the stream did not end")
				}
				for _, e := range s.Take(nil) {
					end = e.End
				}
			}
			if end.Err == nil || end.Err.Kind != Unavailable || !strings.Contains(end.Err.Message, "protocol error") || !strings.Contains(end.Err.Message, c.want) {
				t.Errorf("got %v, want a protocol error with %q", end.Err, c.want)
			}
			if err := client.State().Err; err == nil || !strings.Contains(err.Message, c.want) {
				t.Errorf("state %v", err)
			}
		})
	}
}

func TestClientRefusesStrangeHellos(t *testing.T) {
	greeting := func(h hello) func() []byte {
		return func() []byte { return appendJSONFrame(nil, frameHello, &h) }
	}
	for name, c := range map[string]struct {
		say  func() []byte
		want string
	}{
		"other version": {greeting(hello{Protocol: 99, Version: "v9"}), `"v9" speaks protocol 99`},
		"other clock":   {greeting(hello{Protocol: protocolVersion, ClockNs: 1, State: &State{}}), "clock is off by"},
		"negative cost": {func() []byte {
			return appendJSONFrame(nil, frameHello, &hello{Protocol: protocolVersion, ClockNs: Monotonic(), State: &State{Pace: Pace{Cost: cost.Cost{Base: -1}}}})
		}, "negative or not finite"},
		"no hello": {func() []byte { return frame(frameStep, []byte{0}) }, "is not a hello"},
		"no JSON":  {func() []byte { return frame(frameHello, []byte("{")) }, "not readable"},
		"refusal":  {func() []byte { return appendRefuseFrame(nil, Errorf(Overloaded, "full house")) }, "full house"},
		"HTTP":     {func() []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, "outside the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			client := hostile(t, false, c.say)
			deadline := time.Now().Add(20 * time.Second)
			for !strings.Contains(client.State().Err.Message, c.want) {
				if time.Now().After(deadline) {
					t.Fatalf("state %v, want %q", client.State().Err, c.want)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

func TestClientGivesUpOnSilence(t *testing.T) {
	client := hostile(t, true, func() []byte { return nil })
	client.Close() // its default is too long to wait for
	quiet, err := NewClient(Config{Path: client.cfg.Path, SilenceMax: 20 * time.Millisecond, ReconnectMin: time.Minute, ReconnectMax: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := quiet.State().Err; err != nil && strings.Contains(err.Message, "no sign of life for 20ms") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("state %v", quiet.State().Err)
		}
	}
}

func TestClientSaysThatTheEngineIsLoading(t *testing.T) {
	ln, err := Listen(filepath.Join(t.TempDir(), "e.sock")) // and nobody accepts yet
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(Config{Path: ln.Addr().String(), DialTimeout: 10 * time.Millisecond, ReconnectMax: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(c.State().Err.Message, "may be loading"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("state %v", c.State().Err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, parkedEngine{stillEngine{state: new(State)}}, ServerConfig{}) }()
	defer func() { cancel(); <-done }()
	wait, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	if err := c.WaitReady(wait); err != nil {
		t.Errorf("after it loaded: %v", err)
	}
}

// TestClientRefusesWhenTheEngineDoesNotRead: callers are refused, not blocked.
func TestClientRefusesWhenTheEngineDoesNotRead(t *testing.T) {
	here, there := net.Pipe() // holds nothing: the first write waits
	defer there.Close()
	c := &Client{cfg: Config{WindowEvents: 4, FrameBytesMax: 1 << 20, OutgoingBytesMax: 1000, WriteTimeout: 20 * time.Second}}
	s := newSession(c, here, nil, Model{})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); s.write(stop) }()
	defer func() { close(stop); here.Close(); <-done }()
	notify := make(chan struct{}, 1)
	for range 1000 {
		stream := s.generate(&Generation{Prompt: &Prompt{Text: strings.Repeat("x", 100)}, Options: Options{N: 1}, Notify: notify})
		if events := stream.Take(nil); len(events) == 1 {
			if err := events[0].End.Err; err.Kind != Overloaded || err.RetryAfter == 0 {
				t.Errorf("refused with %v", err)
			}
			stream.Close()
			return
		}
		stream.Close() // a cancel, which is never refused
	}
	t.Error("never refused")
}

// parkedEngine accepts generations and puts no events.
type parkedEngine struct{ stillEngine }

func (parkedEngine) Generate(g *Generation) *Stream { return NewStream(4, g.Notify, stillControl{}) }

func TestServerEndsOnHostileGateways(t *testing.T) {
	hi := appendJSONFrame(nil, frameHello, &hello{Protocol: protocolVersion, ClockNs: Monotonic()})
	one := frame(frameDispatch, dispatchPayload(&dispatch{Sequence: 1, Window: 4, Generation: Generation{Prompt: &Prompt{}}}))
	narrow := frame(frameDispatch, dispatchPayload(&dispatch{Sequence: 1, Generation: Generation{Prompt: &Prompt{}}}))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"HTTP":                 {[]byte("GET / HTTP/1.1\r\n\r\n"), "outside the limit"},
		"other version":        {appendJSONFrame(nil, frameHello, &hello{Protocol: 77}), "speaks protocol 77"},
		"no hello":             {one, "is not a hello"},
		"huge length":          {join(hi, []byte{0xff, 0xff, 0xff, 0xff, 6}), "outside the limit"},
		"unknown type":         {join(hi, frame(0, nil)), "unknown frame type 0"},
		"truncated dispatch":   {join(hi, frame(frameDispatch, []byte{1, 2})), "protocol: "},
		"same sequence twice":  {join(hi, one, one), "ids must ascend"},
		"no window":            {join(hi, narrow), "a window of 0"},
		"ack of nothing":       {join(hi, one, appendAckFrame(nil, 1, 1)), "acknowledged"},
		"cancel of a stranger": {join(hi, appendIDFrame(nil, frameCancel, 5)), "never dispatched"},
		"trailing bytes":       {join(hi, frame(frameCancel, []byte{1, 1, 1})), "follow the end"},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			served := make(chan struct{})
			cfg := ServerConfig{SequencesMax: 8, PreparesMax: 8, FrameBytesMax: 1 << 20, OutgoingBytesMax: 1 << 20,
				HelloTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second, HeartbeatInterval: time.Second}
			go func() {
				defer close(served)
				serveConnection(context.Background(), there, parkedEngine{stillEngine{state: new(State)}}, &cfg)
			}()
			go here.Write(c.bytes)
			here.SetReadDeadline(time.Now().Add(20 * time.Second))
			r := newFrameReader(here, 1<<20)
			var last *Error
			for {
				kind, payload, err := r.next()
				if err != nil {
					break
				}
				if kind == frameRefuse {
					last = refusal(payload)
				}
			}
			if last == nil || last.Kind != Protocol || !strings.Contains(last.Error(), c.want) {
				t.Errorf("heard %v, want a protocol error with %q", last, c.want)
			}
			here.Close()
			<-served
		})
	}
}
