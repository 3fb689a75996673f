package cli

import (
	"bytes"
	"io"
	"sync/atomic"
	"time"
)

// outlet passes lines on to w without waiting for it, so that a reader of our
// output that hangs cannot stop the service. Lines that do not fit or cannot be
// written are dropped and counted.
type outlet struct {
	w       io.Writer
	lines   chan []byte
	quit    chan struct{}
	done    chan struct{}
	dropped atomic.Int64
}

const outletCloseLimit = time.Second

// newOutlet returns an outlet with a buffer of linesMax lines.
func newOutlet(w io.Writer, linesMax int) *outlet {
	o := &outlet{w: w, lines: make(chan []byte, linesMax), quit: make(chan struct{}), done: make(chan struct{})}
	go o.run()
	return o
}

// Write takes whole lines and never fails.
func (o *outlet) Write(p []byte) (int, error) {
	select {
	case o.lines <- bytes.Clone(p):
	default:
		o.dropped.Add(1)
	}
	return len(p), nil
}

func (o *outlet) run() {
	defer close(o.done)
	for {
		select {
		case line := <-o.lines:
			o.pass(line)
		case <-o.quit:
			for len(o.lines) > 0 {
				o.pass(<-o.lines)
			}
			return
		}
	}
}

func (o *outlet) pass(line []byte) {
	if _, err := o.w.Write(line); err != nil {
		o.dropped.Add(1)
	}
}

// close writes the buffered lines for up to outletCloseLimit, and returns the
// number of dropped lines.
func (o *outlet) close() int64 {
	close(o.quit)
	select {
	case <-o.done:
	case <-time.After(outletCloseLimit):
		o.dropped.Add(int64(len(o.lines)))
	}
	return o.dropped.Load()
}
