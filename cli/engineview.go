package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/internal/wire"
)

// engineView follows the engine's state as its client hears it: it logs when
// the engine goes and comes, tells the supervisor that it lives, and puts the
// reasons into words that clients may read.
type engineView struct {
	child *supervise.Supervisor // nil if the engine is not ours to start
	path  string                // of the socket
	log   *slog.Logger

	stopping atomic.Bool            // we stop it: its end is no news
	fetching atomic.Pointer[string] // its model is being downloaded, and how far that is

	// Owned by heard.
	wasReady, isReady bool
	since             time.Time // the loss
	told              string    // why it is away, as last logged
}

// heard takes every state in order, as a wire.Config's OnState.
func (v *engineView) heard(s *wire.State) {
	if v.child != nil && s.PagesTotal > 0 { // the engine's own word, though it may be draining
		v.child.Alive(time.Now().Add(time.Duration(s.At - wire.Monotonic())))
	}
	if s.Err == nil {
		if v.wasReady && !v.isReady {
			v.log.Info("the engine is back", "model", s.Model.ID, "away", time.Since(v.since).Round(time.Millisecond))
		}
		v.wasReady, v.isReady, v.told = true, true, ""
		return
	}
	switch why := s.Err.Message; {
	case v.stopping.Load():
	case v.isReady:
		v.isReady, v.since, v.told = false, time.Now(), why
		v.log.Warn("the engine is lost", "reason", why)
	case v.told == "": // the state before the first attempt to connect
		v.told = why
	case v.child == nil && v.told != why: // the supervisor tells of its own child
		v.told = why
		v.log.Warn("waiting for the engine", "reason", why, "socket", v.path)
	}
}

// fetches tells how far the download of the engine's model is, fetched that it
// is over.
func (v *engineView) fetches(done string) { v.fetching.Store(&done) }
func (v *engineView) fetched()            { v.fetching.Store(nil) }

// fetchRetryAfter is when a client may ask again while the model is downloaded.
const fetchRetryAfter = 10 * time.Second

// public is err in words for clients: what the supervisor knows, and no path.
func (v *engineView) public(err *wire.Error) *wire.Error {
	told := *err
	if done := v.fetching.Load(); done != nil && err.Kind == wire.Unavailable {
		told.Message, told.RetryAfter = "the model is being downloaded", fetchRetryAfter
		if *done != "" {
			told.Message += ": " + *done
		}
		return &told
	}
	if v.child != nil && err.Kind == wire.Unavailable {
		if reason := v.child.Reason(); reason != "" {
			told.Message = reason
			told.RetryAfter = max(told.RetryAfter, time.Until(v.child.RestartsAt()))
		}
	}
	told.Message = strings.ReplaceAll(told.Message, v.path, "its socket")
	return &told
}

// explained is the engine's client, with reasons as view gives them.
type explained struct {
	*wire.Client
	view *engineView
}

// State implements wire.Engine.
func (e explained) State() *wire.State {
	s := e.Client.State()
	if s.Err == nil {
		return s
	}
	told := *s
	told.Err = e.view.public(s.Err)
	return &told
}

// Prepare implements wire.Engine.
func (e explained) Prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, error) {
	p, err := e.Client.Prepare(ctx, r)
	if err != nil {
		err = e.view.public(wire.AsError(err))
	}
	return p, err
}
