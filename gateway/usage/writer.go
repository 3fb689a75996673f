package usage

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/conf"
)

// Writer writes lines. Its methods may be called from any goroutine.
type Writer struct {
	cfg   Config
	log   *slog.Logger
	clock func() time.Time
	wake  chan struct{} // capacity 1: lines wait
	quit  chan struct{}
	ended chan struct{}
	once  sync.Once

	file *file // owned by the goroutine

	mu      sync.Mutex
	seq     uint64    // guarded by mu, as the rest: of the last line
	waiting []waiting // oldest first; those that are being written too
	counts  telemetry.UsageCounts
	told    time.Time // when a loss was last logged
}

// waiting is a line that waits.
type waiting struct {
	seq  uint64
	text []byte
}

// Open opens the file of cfg and starts to write; nil without a file. clock is
// time.Now if nil.
func Open(cfg Config, log *slog.Logger, clock func() time.Time) (*Writer, error) {
	if cfg.File == "" {
		return nil, nil
	}
	w, err := open(cfg, log, clock)
	if err != nil {
		return nil, err
	}
	go w.run()
	return w, nil
}

// open is Open without the goroutine.
func open(cfg Config, log *slog.Logger, clock func() time.Time) (*Writer, error) {
	if err := conf.Complete("usage", &cfg); err != nil {
		return nil, err
	}
	if clock == nil {
		clock = time.Now
	}
	w := &Writer{cfg: cfg, log: log, clock: clock, wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if w.file, err = openFile(&w.cfg, log); err != nil {
		return nil, err
	}
	w.seq = w.file.last
	return w, nil
}

// Add takes the line of a finished request, if it ran. It does not wait.
func (w *Writer) Add(r *telemetry.Record) {
	if r.Dispatched == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	if len(w.waiting) >= w.cfg.QueueMax {
		w.lose(1)
		return
	}
	w.waiting = append(w.waiting, waiting{w.seq, appendLine(nil, w.seq, r, w.clock())})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// lose counts lines that are not written, and logs it at most once a minute. mu is held.
func (w *Writer) lose(lines int) {
	w.counts.Lost += uint64(lines)
	if now := time.Now(); now.Sub(w.told) > time.Minute {
		w.told = now
		w.log.Error("usage: lines are lost, since the disk does not take them; their numbers are left out", "file", w.cfg.File, "lost", w.counts.Lost)
	}
}

// Counts are the counters since the start.
func (w *Writer) Counts() telemetry.UsageCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.counts
	c.Waiting = len(w.waiting)
	return c
}

// Close writes what waits, within Config.FlushLimit.
func (w *Writer) Close() {
	w.once.Do(func() { close(w.quit) })
	select {
	case <-w.ended:
	case <-time.After(w.cfg.FlushLimit + 2*retryWait): // a write hangs
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 {
		w.told = time.Time{} // the last word is logged
		w.lose(len(w.waiting))
		w.waiting = nil
	}
}

// retryWait is how long after a failure the writer tries again.
const retryWait = 250 * time.Millisecond

// run writes until Close, and then what is left.
func (w *Writer) run() {
	defer close(w.ended)
	defer w.file.close()
	timer := time.NewTimer(w.cfg.SyncInterval)
	defer timer.Stop()
	end := time.Time{} // of the last tries, once Close was called
	for {
		failed := w.writeAll()
		pause := w.cfg.SyncInterval
		if failed {
			pause = retryWait
		}
		if !end.IsZero() && (!failed || time.Now().After(end)) {
			w.note(w.file.sync())
			return
		}
		timer.Reset(pause)
		quit := w.quit
		if !end.IsZero() {
			quit = nil
		}
		wake := w.wake
		if failed {
			wake = nil
		}
		select {
		case <-wake:
		case <-timer.C:
			if w.cfg.Sync == "interval" {
				w.note(w.file.sync())
			}
		case <-quit:
			end = time.Now().Add(w.cfg.FlushLimit)
		}
	}
}

// batchBytesMax bounds one write.
const batchBytesMax = 256 << 10

// writeAll writes the lines that wait, and reports whether the disk failed.
func (w *Writer) writeAll() (failed bool) {
	var batch []byte
	for {
		w.mu.Lock()
		batch = batch[:0]
		n, last, most := 0, uint64(0), min(batchBytesMax, w.file.room())
		for n < len(w.waiting) && (n == 0 || len(batch)+len(w.waiting[n].text) <= most) {
			batch, last = append(batch, w.waiting[n].text...), w.waiting[n].seq
			n++
		}
		w.mu.Unlock()
		if n == 0 {
			return false
		}
		if err := w.file.write(batch, last); err != nil {
			w.note(err)
			return true
		}
		if w.cfg.Sync == "line" {
			w.note(w.file.sync())
		}
		w.mu.Lock()
		w.waiting = slices.Delete(w.waiting, 0, min(n, len(w.waiting)))
		w.counts.Written += uint64(n)
		w.counts.FilesRemoved = w.file.removed
		w.mu.Unlock()
	}
}

// note counts and logs an error of the disk.
func (w *Writer) note(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	w.counts.Errors++
	first := w.counts.Errors == 1 || time.Since(w.told) > time.Minute
	if first {
		w.told = time.Now()
	}
	w.mu.Unlock()
	if first {
		w.log.Error("usage: cannot write; lines wait in memory, up to usage.queue_max", "file", w.cfg.File, "error", err)
	}
}
