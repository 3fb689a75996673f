package main

import (
	"cmp"
	"context"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
)

// paced is an engine that computes nothing and takes the time of it: one prompt after the
// other, by a cost that it states, with a real page pool. It keeps its schedule where it
// wakes up late, so a busy machine does not make it slower.
type paced struct {
	pool  *cache.Pool // Match and Hasher; the loop owns the rest
	cost  cost.Cost
	token time.Duration // of an answer
	wake  chan struct{} // capacity 1
	state atomic.Pointer[wire.State]

	mu    sync.Mutex
	queue []*job
	now   *job // that is computed
	until time.Time
	count wire.Totals
	steps uint64
}

// job is a generation.
type job struct {
	engine  *paced
	g       *wire.Generation
	stream  *wire.Stream
	arrived time.Time
	cached  int
	begun   bool // it has its first token
	ended   bool
	timings wire.Timings
}

const (
	pageTokens    = 16
	pacedContext  = 1 << 16
	pacedVocab    = 1 << 30
	stepTokens    = 512
	stateInterval = 20 * time.Millisecond
)

func newPaced(pages int, c cost.Cost, token time.Duration) (*paced, error) {
	pool, err := cache.New(cache.Config{Pages: pages, PageTokens: pageTokens, Space: "paced"})
	if err != nil {
		return nil, err
	}
	e := &paced{pool: pool, cost: c, token: token, wake: make(chan struct{}, 1)}
	e.publish()
	return e, nil
}

// serveEngine runs an engine on a Unix socket until the process is told to end.
func serveEngine(path string, pages int, c cost.Cost, token time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	e, err := newPaced(pages, c, token)
	if err != nil {
		return err
	}
	ln, err := wire.Listen(path)
	if err != nil {
		return err
	}
	go e.run(ctx)
	return wire.Serve(ctx, ln, e, wire.ServerConfig{Version: "paced"})
}

// Prepare implements wire.Engine, for prompts of token ids.
func (e *paced) Prepare(_ context.Context, r *wire.Request) (*wire.Prompt, error) {
	if len(r.Tokens) == 0 || len(r.Tokens) > pacedContext/2 {
		return nil, wire.InvalidParam("prompt", "a paced engine takes 1 to %d token ids", pacedContext/2)
	}
	return &wire.Prompt{
		Tokens: r.Tokens, Room: pacedContext / 2, CachedTokens: e.pool.Match(r.Salt, r.Tokens), BlockHashes: e.pool.Hasher().Blocks(r.Salt, r.Tokens),
	}, nil
}

// Generate implements wire.Engine.
func (e *paced) Generate(g *wire.Generation) *wire.Stream {
	j := &job{engine: e, g: g, arrived: time.Now()}
	j.stream = wire.NewStream(8, g.Notify, j)
	j.timings.Arrived, j.timings.Received = wire.Monotonic(), wire.Monotonic()
	e.mu.Lock()
	e.queue = append(e.queue, j)
	slices.SortStableFunc(e.queue, func(a, b *job) int { return cmp.Or(cmp.Compare(a.g.Level, b.g.Level), cmp.Compare(a.g.Key, b.g.Key)) })
	e.publishLocked()
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return j.stream
}

// State implements wire.Engine.
func (e *paced) State() *wire.State { return e.state.Load() }

// run computes one job after the other.
func (e *paced) run(ctx context.Context) {
	free := time.Now() // when the work so far is done
	for ctx.Err() == nil {
		j := e.next()
		if j == nil {
			e.rest(ctx, time.Now().Add(stateInterval))
			continue
		}
		begin := j.arrived
		if free.After(begin) {
			begin = free
		}
		free = e.compute(ctx, j, begin)
	}
}

func (e *paced) next() *job {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) == 0 {
		return nil
	}
	e.now, e.queue = e.queue[0], e.queue[1:]
	return e.now
}

// compute takes the time of a job that begins then, and returns when it is done.
func (e *paced) compute(ctx context.Context, j *job, begin time.Time) time.Time {
	tokens := j.g.Prompt.Tokens
	s := e.pool.Open(j.g.Salt, tokens)
	cached := s.Len()
	uncached := len(tokens) - cached
	took := e.cost.Prefill(uncached, cached, stepTokens)
	first := begin.Add(took)
	_, ok := e.pool.Reserve(s, uncached, nil)
	e.mu.Lock()
	j.cached, e.until = cached, first
	j.timings.Scheduled = wire.Monotonic()
	e.mu.Unlock()
	e.sleep(ctx, first)
	if ok {
		e.pool.Commit(s, tokens[cached:])
	}
	e.pool.Close(s)
	e.step(took, uncached, cached)
	j.put(wire.Event{TokenCount: 1, Text: "x", Cached: cached}, false)
	done := first.Add(time.Duration(j.g.Options.MaxTokens) * e.token)
	e.sleep(ctx, done)
	j.put(wire.Event{TokenCount: j.g.Options.MaxTokens, Text: "y", Finish: wire.FinishLength}, true)
	e.mu.Lock()
	e.now = nil
	e.publishLocked()
	e.mu.Unlock()
	return done
}

// step counts a computed prompt, and tells of its blocks.
func (e *paced) step(took time.Duration, uncached, cached int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps++
	e.count.PrefillTokens += uint64(uncached)
	e.count.CachedTokens += uint64(cached)
	s := e.stateLocked()
	s.StepPrefillTokens, s.StepDuration, s.StepPredicted, s.Blocks = uncached, took, took, e.pool.Journal()
	e.state.Store(s)
}

// put adds an event, and with last the end. A job that was cancelled has ended.
func (j *job) put(event wire.Event, last bool) {
	j.engine.mu.Lock()
	defer j.engine.mu.Unlock()
	if j.ended {
		return
	}
	if !j.begun {
		j.begun, j.timings.FirstToken = true, wire.Monotonic()
	}
	j.stream.Put(event)
	if last {
		j.endLocked(nil, event.TokenCount)
	}
	j.stream.Wake()
}

func (j *job) endLocked(err *wire.Error, completion int) {
	j.ended = true
	j.timings.Finished = wire.Monotonic()
	u := wire.Usage{Prompt: len(j.g.Prompt.Tokens), Completion: completion}
	if j.begun {
		u.Cached, u.Computed = j.cached, u.Prompt-j.cached
	}
	j.stream.Put(wire.Event{End: &wire.End{Err: err, Usage: u, Timings: j.timings}})
}

// Cancel implements wire.Control. What is being computed goes on, without a reader.
func (j *job) Cancel() {
	e := j.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if !j.ended {
		e.queue = slices.DeleteFunc(e.queue, func(q *job) bool { return q == j })
		j.endLocked(wire.Errorf(wire.Canceled, "the reader left"), 0)
		j.stream.Wake()
	}
}

// Pause, Resume and Taken implement wire.Control; a paced engine does not pause.
func (j *job) Pause()  {}
func (j *job) Resume() {}
func (j *job) Taken()  {}

// sleep waits until then, and tells the state meanwhile.
func (e *paced) sleep(ctx context.Context, then time.Time) {
	for ctx.Err() == nil && time.Now().Before(then) {
		select {
		case <-ctx.Done():
		case <-time.After(min(stateInterval, time.Until(then))):
		}
		e.publish()
	}
}

// rest is sleep that an arrival ends.
func (e *paced) rest(ctx context.Context, then time.Time) {
	select {
	case <-ctx.Done():
	case <-e.wake:
	case <-time.After(time.Until(then)):
	}
	e.publish()
}

func (e *paced) publish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publishLocked()
}

func (e *paced) publishLocked() {
	last := e.state.Load()
	s := e.stateLocked()
	if last != nil {
		s.StepPrefillTokens, s.StepDuration, s.StepPredicted, s.Blocks = last.StepPrefillTokens, last.StepDuration, last.StepPredicted, last.Blocks
	}
	e.state.Store(s)
}

// stateLocked is the state as of now, without the last step and the blocks.
func (e *paced) stateLocked() *wire.State {
	s := &wire.State{
		Model: wire.Model{ID: "paced", Digest: "paced", Fingerprint: "paced", ContextTokens: pacedContext, VocabTokens: pacedVocab, PageTokens: pageTokens, ChoicesMax: 1},
		At:    wire.Monotonic(), Step: e.steps, Totals: e.count,
	}
	s.Room = cost.Room{Budget: 50 * time.Millisecond, TokensMin: pageTokens, TokensMax: stepTokens}
	s.Cost, s.RatioMedian, s.RatioHigh = e.cost, 1, 1
	s.PagesTotal = 1 << 20 // memory is no limit here: the pool evicts
	s.PagesFree = s.PagesTotal
	for _, j := range e.queue {
		s.Waiting++
		s.ShortPrefill += len(j.g.Prompt.Tokens) - j.g.Prompt.CachedTokens
	}
	if e.now != nil {
		s.Running = 1
		if left := time.Until(e.until); left > 0 {
			s.ShortPrefill += int(float64(left) / max(1, e.cost.PrefillToken))
		}
	}
	s.Sequences = s.Waiting + s.Running
	return s
}
