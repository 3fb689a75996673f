package spans

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/forebay-io/forebay/internal/conf"
)

// Exporter sends trees to a collector. A nil Exporter sends nothing. Its methods may
// be called from any goroutine.
type Exporter struct {
	cfg     Config
	names   Names
	client  sdktrace.SpanExporter
	release func()
	anchor  func() int64
	maker   *maker // used by the goroutine run alone, as the next two
	sent    sentTraces
	failing bool

	mu      sync.Mutex
	queue   []waiting
	spans   int // in queue
	closed  bool
	closing sync.Once

	wake    chan struct{} // of capacity 1: queue or closed has changed
	done    chan struct{} // run has returned
	sending context.Context
	abort   context.CancelFunc // ends sending; what waits is dropped

	counters struct{ exported, queueFull, failed, shutDown, attributes atomic.Uint64 }
}

// waiting is what one call handed in.
type waiting struct {
	trees  []Tree
	spans  int   // of all trees
	offset int64 // from CLOCK_MONOTONIC to wall time, one for all trees
}

// Stats counts spans since the start.
type Stats struct {
	Exported          uint64
	QueueFull         uint64 // dropped: they did not fit into the queue
	Failed            uint64 // dropped: the collector refused them or was away
	ShutDown          uint64 // dropped: handed in or still waiting at the stop
	AttributesDropped uint64
	Queued            int // waiting now
}

// New makes an Exporter and does not wait for the collector. It returns nil
// without an error if neither cfg nor its environment names an endpoint.
func New(cfg Config) (*Exporter, error) {
	if err := conf.Complete("spans", &cfg); err != nil {
		return nil, err
	}
	t, err := cfg.resolve()
	if t == nil || err != nil {
		return nil, err
	}
	client, release, err := t.connect(cfg.ExportTimeout)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Exporter{
		cfg: cfg, names: t.names, client: client, release: release, anchor: anchor,
		maker: newMaker(t, cfg.Version, cfg.Instance, t.names.schemaURL()),
		wake:  make(chan struct{}, 1), done: make(chan struct{}),
	}
	e.sending, e.abort = context.WithCancel(context.Background())
	go e.run()
	return e, nil
}

// Names says how the gen_ai attributes of the spans should be named.
func (e *Exporter) Names() Names {
	if e == nil {
		return Names141
	}
	return e.names
}

// Export hands in trees, all or none, and reports whether they were taken. It
// never waits for the collector.
func (e *Exporter) Export(trees ...Tree) bool {
	if e == nil {
		return false
	}
	w := waiting{trees: trees, offset: e.anchor()}
	for i := range trees {
		w.spans += len(trees[i].Spans)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		e.counters.shutDown.Add(uint64(w.spans))
		return false
	case e.spans+w.spans > e.cfg.QueueMax:
		e.counters.queueFull.Add(uint64(w.spans))
		return false
	}
	e.queue, e.spans = append(e.queue, w), e.spans+w.spans
	e.signal()
	return true
}

func (e *Exporter) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Stats returns the current counts.
func (e *Exporter) Stats() Stats {
	if e == nil {
		return Stats{}
	}
	e.mu.Lock()
	queued := e.spans
	e.mu.Unlock()
	c := &e.counters
	return Stats{c.exported.Load(), c.queueFull.Load(), c.failed.Load(), c.shutDown.Load(), c.attributes.Load(), queued}
}

// Close sends what waits for at most FlushLimit, drops the rest, and waits until the
// Exporter's goroutine has ended. It is idempotent.
func (e *Exporter) Close() {
	if e == nil {
		return
	}
	e.closing.Do(func() {
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		e.signal()
		limit := time.AfterFunc(e.cfg.FlushLimit, e.abort)
		<-e.done
		limit.Stop()
		e.client.Shutdown(e.sending) // fails only if abort has come
		e.abort()
		e.release()
		e.tell()
	})
	<-e.done
}

// tell says at the stop what was lost, since no scrape comes after it.
func (e *Exporter) tell() {
	s := e.Stats()
	if s.QueueFull+s.Failed+s.ShutDown == 0 {
		return
	}
	e.cfg.Log.Warn("spans were lost", "stopped", s.ShutDown, "failed", s.Failed, "queue_full", s.QueueFull, "exported", s.Exported, "flush_limit", e.cfg.FlushLimit)
}

// run sends what waits, until Close. A batch is what came while the last one was sent,
// so batches are large under load, and without load nothing waits.
func (e *Exporter) run() {
	defer close(e.done)
	for range e.wake {
		for batch := e.take(); len(batch) > 0; batch = e.take() {
			e.send(batch)
		}
		e.mu.Lock()
		over := e.closed && len(e.queue) == 0
		e.mu.Unlock()
		if over {
			return
		}
	}
}

// take removes a batch from the queue: at least one call, and at most BatchMax spans if
// there are several.
func (e *Exporter) take() []waiting {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, spans := 0, 0
	for n < len(e.queue) && (n == 0 || spans+e.queue[n].spans <= e.cfg.BatchMax) {
		spans += e.queue[n].spans
		n++
	}
	batch := slices.Clone(e.queue[:n])
	e.queue, e.spans = slices.Delete(e.queue, 0, n), e.spans-spans
	return batch
}

func (e *Exporter) send(batch []waiting) {
	e.maker.made, e.maker.dropped = e.maker.made[:0], 0
	for _, w := range batch {
		if e.sending.Err() != nil {
			e.counters.shutDown.Add(uint64(w.spans))
			continue
		}
		for i := range w.trees {
			e.sent.choose(&w.trees[i])
			e.maker.tree(&w.trees[i], w.offset)
		}
	}
	e.counters.attributes.Add(uint64(e.maker.dropped))
	for part := range slices.Chunk(e.maker.made, e.cfg.BatchMax) {
		e.upload(part)
	}
	clear(e.maker.made)
}

func (e *Exporter) upload(part []sdktrace.ReadOnlySpan) {
	ctx, cancel := context.WithTimeout(e.sending, e.cfg.ExportTimeout)
	defer cancel()
	err := e.sending.Err()
	if err == nil {
		err = e.client.ExportSpans(ctx, part)
	}
	refused := uint64(len(part))
	if n, ok := rejected(err); ok {
		refused = min(n, refused)
	}
	switch {
	case err == nil:
		e.counters.exported.Add(uint64(len(part)))
		if e.failing {
			e.cfg.Log.Info("spans are exported again", "failed", e.counters.failed.Load(), "queue_full", e.counters.queueFull.Load())
		}
		e.failing = false
		return
	case e.sending.Err() != nil:
		e.counters.shutDown.Add(refused)
	default:
		e.counters.failed.Add(refused)
	}
	e.counters.exported.Add(uint64(len(part)) - refused)
	e.sent.forget()
	if !e.failing {
		e.cfg.Log.Warn("spans cannot be exported; until they can, they are dropped and counted", "error", err)
	}
	e.failing = true
}

// rejectedSpans matches the SDK's error for a batch that a collector took in part. The
// type of that error is not exported.
var rejectedSpans = regexp.MustCompile(`partial success: .*\((\d+) spans rejected\)`)

// rejected returns how many spans of a batch the collector refused, if it took the
// others.
func rejected(err error) (n uint64, ok bool) {
	if err == nil {
		return 0, false
	}
	found := rejectedSpans.FindStringSubmatch(err.Error())
	if found == nil {
		return 0, false
	}
	n, err = strconv.ParseUint(found[1], 10, 64)
	return n, err == nil
}
