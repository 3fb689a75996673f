package wiretest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// start prepares and dispatches one text prompt.
func start(t *testing.T, e wire.Engine, id string, o wire.Options) (*wire.Stream, chan struct{}) {
	t.Helper()
	text := "prompt of " + id
	p, err := e.Prepare(context.Background(), &wire.Request{ID: id, Text: &text})
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	notify := make(chan struct{}, 1)
	s := e.Generate(&wire.Generation{ID: id, Prompt: p, Options: o, Notify: notify})
	t.Cleanup(s.Close)
	return s, notify
}

// texts reads s to its end and joins the texts by choice.
func texts(t *testing.T, s *wire.Stream, notify chan struct{}, n int) ([]string, *wire.End) {
	t.Helper()
	out := make([]string, n)
	deadline := time.After(10 * time.Second)
	for {
		for _, e := range s.Take(nil) {
			if e.End != nil {
				return out, e.End
			}
			out[e.Choice] += e.Text
		}
		select {
		case <-notify:
		case <-deadline:
			t.Fatal("the stream did not end")
		}
	}
}

func TestFakePlaysScripts(t *testing.T) {
	fake := wiretest.NewFake(wiretest.Script{Choices: [][]string{{"a", "b"}, {"c"}}, CachedTokens: 3})
	defer fake.Close()
	s, notify := start(t, fake, "x", wire.Options{N: 2})
	out, end := texts(t, s, notify, 2)
	if out[0] != "ab" || out[1] != "c" || end.Err != nil {
		t.Fatalf("got %q, %v", out, end.Err)
	}
	if want := (wire.Usage{Prompt: len("prompt of x"), Cached: 3, Computed: 8, Completion: 3}); end.Usage != want {
		t.Errorf("usage %+v, want %+v", end.Usage, want)
	}
	r, ok := fake.Record("x")
	if !ok || !r.Prepared || !r.Dispatched || !r.Ended || r.Tokens != 3 || r.Canceled {
		t.Errorf("record %+v", r)
	}
}

func TestFakeHangsUntilCanceled(t *testing.T) {
	fake := wiretest.NewFake(wiretest.Script{Pieces: []string{"a"}, Hang: true})
	defer fake.Close()
	s, _ := start(t, fake, "x", wire.Options{N: 1})
	if _, ok := fake.WaitRecord(10*time.Second, func(r wiretest.Record) bool { return r.Tokens == 1 }); !ok {
		t.Fatal("no token")
	}
	if fake.Live() != 1 {
		t.Fatal("the generation ended by itself")
	}
	s.Close()
	if r, _ := fake.Record("x"); fake.Live() != 0 || !r.Canceled {
		t.Errorf("live %d, record %+v after Close", fake.Live(), r)
	}
}

func TestFakeEndsWithErrors(t *testing.T) {
	fake := wiretest.NewFakeWith(wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
		if strings.HasSuffix(g.Prompt.Text, "bad") {
			return wiretest.Script{Pieces: []string{"a"}, Err: wire.Errorf(wire.NonFinite, "NaN")}
		}
		return wiretest.Script{Endless: true}
	}})
	defer fake.Close()
	s, notify := start(t, fake, "bad", wire.Options{N: 1})
	out, end := texts(t, s, notify, 1)
	if out[0] != "a" || end.Err == nil || end.Err.Kind != wire.NonFinite {
		t.Fatalf("got %q, %v", out, end.Err)
	}
	s, notify = start(t, fake, "good", wire.Options{N: 1, MaxTokens: 300})
	out, end = texts(t, s, notify, 1)
	if out[0] != strings.Repeat("tok ", 300) || end.Err != nil {
		t.Fatalf("got %d bytes, %v", len(out[0]), end.Err)
	}
	fake.SetErr(wire.Errorf(wire.Draining, "the engine is stopping"))
	if _, err := fake.Prepare(context.Background(), &wire.Request{}); wire.AsError(err).Kind != wire.Draining {
		t.Errorf("Prepare while draining: %v", err)
	}
}

func TestFakeConforms(t *testing.T) {
	wiretest.Run(t, func(t *testing.T) wire.Engine {
		fake := wiretest.NewFakeWith(wiretest.FakeSuiteConfig())
		t.Cleanup(func() { fake.Close() })
		return fake
	}, wiretest.FakeSuite())
}
