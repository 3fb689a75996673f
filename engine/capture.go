package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// capture is a wish to see the launches of the next steps.
type capture struct {
	steps int
	stop  atomic.Bool       // whoever wished has waited long enough
	done  chan wire.Capture // capacity 1

	// Owned by the loop from the turn that takes it.
	result wire.Capture
}

// launchesOfStep is more than a step has in most models.
const launchesOfStep = 1024

// Capture implements wire.Capturer.
func (e *Engine) Capture(ctx context.Context, steps int, limit time.Duration) (*wire.Capture, error) {
	if err := wire.CheckCapture(steps, limit); err != nil {
		return nil, err
	}
	if err := e.inbox.refusal(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := &capture{steps: steps, done: make(chan wire.Capture, 1)}
	c.result.Launches = make([]wire.Launch, 0, min(wire.CaptureLaunchesMax, steps*launchesOfStep))
	if !e.inbox.capture.CompareAndSwap(nil, c) {
		return nil, errOverloaded("a capture of kernel launches is running, and %d runs at a time; try again", 1)
	}
	stopped := ctx.Done()
	for {
		select {
		case result := <-c.done:
			return &result, nil
		case <-e.looped:
			return nil, errClosed()
		case <-stopped:
			c.stop.Store(true)
			e.inbox.kick()
			stopped = nil
		}
	}
}

// followCapture begins the capture that is wished for, and ends one that is no
// longer waited for.
func (l *loop) followCapture() {
	c := l.inbox.capture.Load()
	if c != l.capture {
		l.capture, l.timer.Launches, l.timer.Missing = c, c.result.Launches, 0
	}
	if c != nil && c.stop.Load() {
		l.endCapture()
	}
}

// countCapture counts a step of the capture that runs.
func (l *loop) countCapture() {
	if l.capture == nil {
		return
	}
	if l.capture.result.Steps++; l.capture.result.Steps == l.capture.steps {
		l.endCapture()
	}
}

// endCapture hands over what was taken down. Steps given up are among it.
func (l *loop) endCapture() {
	c := l.capture
	c.result.Launches, c.result.Missing = l.timer.Launches, l.timer.Missing
	l.capture, l.timer.Launches = nil, nil
	l.inbox.capture.Store(nil)
	c.done <- c.result
}
