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

// engineView follows the states that the engine's client receives. It logs when
// the engine is lost and when it is back, tells the supervisor that the engine
// lives, and rewrites reasons for clients.
type engineView struct {
	child *supervise.Supervisor // nil if the engine is not ours to start
	path  string                // of the socket
	log   *slog.Logger

	stopping atomic.Bool            // we stop the engine, so its end is not logged
	fetching atomic.Pointer[string] // progress of the model's download, nil if none runs

	// Only heard uses these.
	wasReady, isReady bool
	since             time.Time // the loss
	told              string    // the last logged reason of the loss
}

// heard is the OnState of a wire.Config: it gets every state in order.
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

// fetches sets the progress of the model's download; fetched ends it.
func (v *engineView) fetches(done string) { v.fetching.Store(&done) }
func (v *engineView) fetched()            { v.fetching.Store(nil) }

// fetchRetryAfter is the Retry-After while the model is downloaded.
const fetchRetryAfter = 10 * time.Second

// public rewrites err for clients: with the reason that the supervisor knows, and
// without paths.
func (v *engineView) public(err *wire.Error) *wire.Error {
	told := *err
	if done := v.fetching.Load(); done != nil && err.Kind == wire.Unavailable {
		told.Kind = wire.Loading
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

// explained is the engine's client with errors rewritten by view.
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
