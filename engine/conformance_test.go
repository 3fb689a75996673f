package engine

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

func engineSuite() wiretest.Suite {
	return wiretest.Suite{
		Text: "Once upon a time", Tokens: 24, LongTokens: 1000, BufferMax: 16, ContextTokens: 2048,
		Close: func(e wire.Engine) { _ = e.(*Engine).Close() },
	}
}

func TestEngineConforms(t *testing.T) {
	wiretest.Run(t, func(t *testing.T) wire.Engine {
		return newDemo(t, Config{StreamEventsMax: 16}).Engine
	}, engineSuite())
}

func TestEngineConformsBehindASocket(t *testing.T) {
	suite := engineSuite()
	suite.BufferMax += 16
	suite.Close = func(e wire.Engine) { e.(*wire.Client).Close() }
	wiretest.Run(t, func(t *testing.T) wire.Engine {
		return connect(t, newDemo(t, Config{StreamEventsMax: 16}).Engine)
	}, suite)
}

// connect puts an engine behind a socket and returns a client of it.
func connect(t *testing.T, e *Engine) *wire.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "e.sock")
	ln, err := wire.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- wire.Serve(ctx, ln, e, wire.ServerConfig{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	c, err := wire.NewClient(wire.Config{Path: path, WindowEvents: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ready, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := c.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
	return c
}
