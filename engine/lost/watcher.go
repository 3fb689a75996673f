package lost

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

// Watcher reads what a Meter needs, and keeps what it finds until Take.
type Watcher struct {
	root fs.FS
	stop chan struct{}
	done chan struct{}

	step    atomic.Int64 // when the running step began, 0 for none
	due     atomic.Int64 // when the next look is due, or a later end of a step; changed under mu
	busiest atomic.Pointer[string]
	taken   atomic.Int64 // when processors were last found to be taken

	mu    sync.Mutex
	used  time.Duration // the processor time at the last look
	meter Meter
	found []wire.LostTime // at most wire.LostTimesMax
}

const (
	look    = 100 * time.Millisecond // between two looks at the time without a step
	refresh = 500 * time.Millisecond // between two readings while nothing is lost
)

// Watch begins to watch, with what steps are known to cost. root is the root of the
// file system.
func Watch(root fs.FS, known cost.Cost) *Watcher {
	w := &Watcher{root: root, stop: make(chan struct{}), done: make(chan struct{})}
	w.meter.Restore(known)
	w.meter.Settle(w.read())
	w.rest(wire.Monotonic())
	go w.run()
	return w
}

// Close ends the Watcher.
func (w *Watcher) Close() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.done
}

// Woke says that the engine had nothing to do until now. A process that has just woken
// may run steps before the Watcher has its turn: the lost time is found here then, and
// told with the first of them.
func (w *Watcher) Woke(at int64) {
	if w == nil || at-w.due.Load() < int64(pieceLeast) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look(at)
}

// Began says that a step begins.
func (w *Watcher) Began(at int64) {
	if w != nil {
		w.step.Store(at)
	}
}

// GaveUp says that the step was given up.
func (w *Watcher) GaveUp() { w.Began(0) }

// Ended takes a step, and returns what it takes where nothing is lost.
func (w *Watcher) Ended(s Step) (predicted time.Duration) {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step.Store(0)
	predicted, l, some := w.meter.Step(s, w.read)
	w.add(l, some)
	w.due.Store(max(w.due.Load(), s.Ended)) // it has told the time until then
	return predicted
}

// Take appends what was found since the last call.
func (w *Watcher) Take(to []wire.LostTime) []wire.LostTime {
	if w == nil {
		return to
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	to = append(to, w.found...)
	w.found = w.found[:0]
	return to
}

// Busiest names the programs that took the processors lately, "" for none.
func (w *Watcher) Busiest() string {
	if w == nil {
		return ""
	}
	if text := w.busiest.Load(); text != nil {
		return *text
	}
	return ""
}

// add keeps l; the caller holds mu. Where there is no room it becomes a part of the
// newest stretch.
func (w *Watcher) add(l wire.LostTime, some bool) {
	if !some {
		return
	}
	if l.By[wire.LostTaken] > 0 {
		w.taken.Store(l.End)
	}
	if len(w.found) < wire.LostTimesMax {
		w.found = append(w.found, l)
		return
	}
	last := &w.found[len(w.found)-1]
	last.End = max(last.End, l.End)
	for i := range l.By {
		last.By[i] += l.By[i]
	}
}

func (w *Watcher) read() Reading {
	cpu, faults := Used()
	return Read(w.root, wire.Monotonic(), cpu, faults)
}

func (w *Watcher) run() {
	defer close(w.done)
	timer := time.NewTimer(look)
	defer timer.Stop()
	var hunt hunt
	for {
		select {
		case <-w.stop:
			return
		case <-timer.C:
		}
		now := wire.Monotonic()
		w.mu.Lock()
		w.look(now)
		w.mu.Unlock()
		w.hunt(&hunt, now)
		w.mu.Lock()
		w.rest(wire.Monotonic()) // the hunt is no lost time
		w.mu.Unlock()
		timer.Reset(look)
	}
}

// look takes the time without a step since a look was due, or since the step that ended
// after that; the caller holds mu.
func (w *Watcher) look(now int64) {
	end := now
	if began := w.step.Load(); began != 0 {
		end = began // the step will tell the rest
	}
	used, _ := Used()
	if l, some := w.meter.Late(w.due.Load(), end, used-w.used, w.read); some {
		w.add(l, true)
	} else if w.step.Load() == 0 && now-w.meter.before.At >= int64(refresh) {
		w.add(w.meter.Settle(w.read()))
	}
	w.rest(now)
}

// rest begins the time to the next look; the caller holds mu.
func (w *Watcher) rest(now int64) {
	w.used, _ = Used()
	w.due.Store(now + int64(look))
}
