package wire_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

const limit = 20 * time.Second

// serve offers engine at path until stop, which waits for the end.
func serve(t *testing.T, path string, engine wire.Engine, cfg wire.ServerConfig) (stop func()) {
	t.Helper()
	ln, err := wire.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- wire.Serve(ctx, ln, engine, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// connect makes a client and waits until it is ready.
func connect(t *testing.T, cfg wire.Config) *wire.Client {
	t.Helper()
	cfg.Version = "test"
	c, err := wire.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

func generate(t *testing.T, e wire.Engine, id string, o wire.Options) (*wire.Stream, chan struct{}) {
	t.Helper()
	text := "prompt " + id
	p, err := e.Prepare(context.Background(), &wire.Request{ID: id, Text: &text})
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	notify := make(chan struct{}, 1)
	s := e.Generate(&wire.Generation{ID: id, Prompt: p, Options: o, Notify: notify})
	t.Cleanup(s.Close)
	return s, notify
}

func readEnd(t *testing.T, s *wire.Stream, notify chan struct{}) (string, *wire.End) {
	t.Helper()
	var text strings.Builder
	deadline := time.After(limit)
	for {
		for _, e := range s.Take(nil) {
			text.WriteString(e.Text)
			if e.End != nil {
				return text.String(), e.End
			}
		}
		select {
		case <-notify:
		case <-deadline:
			t.Fatal("the stream did not end")
		}
	}
}

// eventually waits for ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// noNewGoroutines fails t if more goroutines run at its end than now.
func noNewGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(limit); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				buf := make([]byte, 1<<20)
				t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			}
		}
	})
}

func socketPath(t *testing.T) string { return filepath.Join(t.TempDir(), "e.sock") }

func TestClientGenerates(t *testing.T) {
	noNewGoroutines(t)
	fake := wiretest.NewFake(wiretest.Script{Pieces: []string{"Hel", "lo ", "wörld"}})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{})
	c := connect(t, wire.Config{Path: path})
	if got := c.State().Model; got != fake.State().Model {
		t.Errorf("model %+v", got)
	}
	var all sync.WaitGroup
	for i := range 50 {
		s, notify := generate(t, c, fmt.Sprint(i), wire.Options{N: 1, Seed: 1 << 63, Stop: []string{"x"}})
		all.Go(func() {
			if text, end := readEnd(t, s, notify); text != "Hello wörld" || end.Err != nil || end.Usage.Completion != 3 {
				t.Errorf("got %q, %+v", text, end)
			}
		})
	}
	all.Wait()
}

func TestClientCarriesTheGeneration(t *testing.T) {
	fake := wiretest.NewFake(wiretest.Script{})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{})
	c := connect(t, wire.Config{Path: path})
	trace := wire.TraceContext{TraceID: [16]byte{1, 15: 2}, SpanID: [8]byte{3, 7: 4}, Flags: 1, State: "a=b"}
	notify := make(chan struct{}, 1)
	s := c.Generate(&wire.Generation{ID: "id", Prompt: &wire.Prompt{Tokens: []int32{65}, Text: "A"},
		Options: wire.Options{N: 1, MaxTokens: 5}, Salt: "salt", Class: "batch", Key: -7, Trace: trace, Notify: notify})
	defer s.Close()
	if _, end := readEnd(t, s, notify); end.Err != nil {
		t.Fatal(end.Err)
	}
	r, _ := fake.Record("id")
	if r.Trace != trace || r.Class != "batch" || r.Key != -7 || r.Salt != "salt" || r.Prompt != "A" {
		t.Errorf("record %+v", r)
	}
}

func TestClientSlowReaderParksItsOwn(t *testing.T) {
	fake := wiretest.NewFakeWith(wiretest.FakeConfig{WindowEvents: 4, Script: func(g *wire.Generation) wiretest.Script {
		return wiretest.Script{Endless: true}
	}})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{})
	c := connect(t, wire.Config{Path: path, WindowEvents: 8})
	slow, slowNotify := generate(t, c, "slow", wire.Options{N: 1, MaxTokens: 1000})
	eventually(t, "the slow one parks", func() bool { return fake.State().Paused == 1 })
	if n := slow.Waiting(); n > 8 {
		t.Errorf("%d events wait in a window of 8", n)
	}
	fast, fastNotify := generate(t, c, "fast", wire.Options{N: 1, MaxTokens: 1000})
	if text, end := readEnd(t, fast, fastNotify); end.Err != nil || len(text) != 4000 {
		t.Errorf("the fast one: %d bytes, %v", len(text), end.Err)
	}
	if r, _ := fake.Record("slow"); r.Tokens > 12 {
		t.Errorf("%d tokens made for a reader who takes none", r.Tokens)
	}
	if text, end := readEnd(t, slow, slowNotify); end.Err != nil || len(text) != 4000 {
		t.Errorf("the slow one: %d bytes, %v", len(text), end.Err)
	}
}

func TestClientStreamsEndWhenTheConnectionDoes(t *testing.T) {
	noNewGoroutines(t)
	fake := wiretest.NewFake(wiretest.Script{Pieces: []string{"a"}, Hang: true})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	stop := serve(t, path, fake, wire.ServerConfig{})
	c := connect(t, wire.Config{Path: path})
	s, notify := generate(t, c, "x", wire.Options{N: 1})
	eventually(t, "a token", func() bool { return s.Waiting() == 1 })
	stop()
	text, end := readEnd(t, s, notify)
	if text != "a" || end.Err == nil || end.Err.Kind != wire.Unavailable || end.Err.RetryAfter == 0 || !strings.Contains(end.Err.Message, "the engine went away") {
		t.Errorf("got %q, %v", text, end.Err)
	}
	if err := c.State().Err; err == nil || err.Kind != wire.Unavailable || err.RetryAfter == 0 {
		t.Errorf("state %v", err)
	}
	if _, err := c.Prepare(context.Background(), &wire.Request{}); wire.AsError(err).Kind != wire.Unavailable {
		t.Errorf("Prepare while down: %v", err)
	}
	failed := c.Generate(&wire.Generation{Prompt: &wire.Prompt{}, Notify: notify})
	if _, end := readEnd(t, failed, notify); end.Err == nil || end.Err.Kind != wire.Unavailable {
		t.Errorf("Generate while down: %+v", end)
	}
	if fake.Live() != 0 {
		t.Error("the engine still works for a closed connection")
	}
	serve(t, path, fake, wire.ServerConfig{})
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatalf("after the restart: %v", err)
	}
}

func TestClientsThatComeAndGoLeaveNothing(t *testing.T) {
	noNewGoroutines(t)
	fake := wiretest.NewFake(wiretest.Script{Endless: true, Delay: time.Millisecond})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{})
	for range 20 {
		c := connect(t, wire.Config{Path: path})
		for i := range 4 {
			generate(t, c, fmt.Sprint(i), wire.Options{N: 1})
		}
		eventually(t, "four run", func() bool { return fake.State().Running == 4 })
		c.Close()
		eventually(t, "active is zero", func() bool { s := fake.State(); return s.Running+s.Paused+s.Waiting == 0 })
	}
}

func TestServerRestartsUnderLoad(t *testing.T) {
	noNewGoroutines(t)
	path := socketPath(t)
	fake := wiretest.NewFake(wiretest.Script{Endless: true, Delay: time.Millisecond})
	t.Cleanup(func() { fake.Close() })
	stop := serve(t, path, fake, wire.ServerConfig{})
	c := connect(t, wire.Config{Path: path, ReconnectMax: 20 * time.Millisecond})
	for range 20 {
		var streams []*wire.Stream
		var notifies []chan struct{}
		for i := range 4 {
			s, n := generate(t, c, fmt.Sprint(i), wire.Options{N: 1})
			streams, notifies = append(streams, s), append(notifies, n)
		}
		stop()
		for i, s := range streams {
			if _, end := readEnd(t, s, notifies[i]); end.Err == nil || end.Err.Kind != wire.Unavailable {
				t.Errorf("end %+v", end)
			}
		}
		if fake.Live() != 0 {
			t.Fatalf("%d still live", fake.Live())
		}
		stop = serve(t, path, fake, wire.ServerConfig{})
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

func TestPrepareHonoursItsContext(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	fake := wiretest.NewFakeWith(wiretest.FakeConfig{Prepare: func(ctx context.Context, r *wire.Request) *wire.Error {
		close(entered)
		<-ctx.Done()
		close(left)
		return nil
	}})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{})
	c := connect(t, wire.Config{Path: path})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-entered
		cancel()
	}()
	if _, err := c.Prepare(ctx, &wire.Request{ID: "x"}); wire.AsError(err).Kind != wire.Canceled {
		t.Errorf("got %v", err)
	}
	select {
	case <-left:
	case <-time.After(limit):
		t.Error("the engine was not told")
	}
}

// TestServerLetsPreparesWait: a burst is prepared a few at a time and not
// refused, and one may be abandoned while it waits.
func TestServerLetsPreparesWait(t *testing.T) {
	noNewGoroutines(t)
	var working, most atomic.Int32
	open := make(chan struct{})
	fake := wiretest.NewFakeWith(wiretest.FakeConfig{Prepare: func(ctx context.Context, r *wire.Request) *wire.Error {
		defer working.Add(-1)
		if n := working.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-open
		return nil
	}})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{PreparesMax: 300})
	c := connect(t, wire.Config{Path: path})
	text := "x"
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if _, err := c.Prepare(context.Background(), &wire.Request{ID: "x", Text: &text}); err != nil {
				t.Errorf("in a burst: %v", err)
			}
		})
	}
	limit := int32(max(4, runtime.GOMAXPROCS(0)))
	eventually(t, "all turns are taken", func() bool { return working.Load() == limit })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Prepare(ctx, &wire.Request{ID: "late", Text: &text}); wire.AsError(err).Kind != wire.Canceled {
		t.Errorf("abandoned while it waits: %v", err)
	}
	close(open)
	all.Wait()
	if most.Load() != limit {
		t.Errorf("%d prepared at once of %d allowed", most.Load(), limit)
	}
}

func TestServerRefusesOverItsLimits(t *testing.T) {
	entered := make(chan struct{}, 1)
	fake := wiretest.NewFakeWith(wiretest.FakeConfig{
		Script: func(*wire.Generation) wiretest.Script { return wiretest.Script{Hang: true} },
		Prepare: func(ctx context.Context, r *wire.Request) *wire.Error {
			if r.ID == "waits" {
				entered <- struct{}{}
				<-ctx.Done()
			}
			return nil
		},
	})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{ConnectionsMax: 1, SequencesMax: 2, PreparesMax: 1})
	c := connect(t, wire.Config{Path: path})
	generate(t, c, "1", wire.Options{N: 1})
	generate(t, c, "2", wire.Options{N: 1})
	s, notify := generate(t, c, "3", wire.Options{N: 1})
	if _, end := readEnd(t, s, notify); end.Err == nil || end.Err.Kind != wire.Overloaded {
		t.Errorf("the third: %+v", end)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Prepare(ctx, &wire.Request{ID: "waits"})
	}()
	<-entered
	if _, err := c.Prepare(ctx, &wire.Request{ID: "4"}); wire.AsError(err).Kind != wire.Overloaded || wire.AsError(err).RetryAfter == 0 {
		t.Errorf("the second prepare at once: %v", err)
	}
	cancel()
	<-done
	second, err := wire.NewClient(wire.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	eventually(t, "the second connection is refused", func() bool {
		return strings.Contains(second.State().Err.Message, "connections_max")
	})
}

func TestServerCutsPeersWhoDoNotRead(t *testing.T) {
	noNewGoroutines(t)
	fake := wiretest.NewFake(wiretest.Script{Endless: true, Pieces: []string{strings.Repeat("x", 1<<16)}})
	t.Cleanup(func() { fake.Close() })
	path := socketPath(t)
	serve(t, path, fake, wire.ServerConfig{WriteTimeout: 50 * time.Millisecond})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := wire.SayHelloAndDispatch(conn); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it starts", func() bool { return len(fake.Records()) == 1 })
	eventually(t, "it is cut", func() bool { return fake.Live() == 0 })
}
