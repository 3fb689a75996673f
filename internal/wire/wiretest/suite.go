package wiretest

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/wire"
)

// Suite says what Run may ask of an engine. No check depends on exact texts.
type Suite struct {
	// Text is a prompt of a few tokens.
	Text string
	// Tokens bounds the short generations: at least 8, well within the context.
	Tokens int
	// LongTokens bounds the generations that are cancelled, paused and read
	// slowly. It is more than BufferMax, fits into the context beside the
	// prompt, and keeps the engine busy for some milliseconds.
	LongTokens int
	// BufferMax is how many events one stream may hold unread, engine and
	// transport together.
	BufferMax int
	// ContextTokens is the model's context.
	ContextTokens int
	// Relays says that the engine relays to another server, which does not tell what
	// it does in a step: its steps, its tokens' ids and its log-probabilities are not
	// checked, and a prompt's count may be an estimate.
	Relays bool
	// Close, where set, closes an engine that open gave; all later calls must
	// fail with Unavailable or Draining.
	Close func(wire.Engine)
	// Limit is how long anything may take; zero is a minute.
	Limit time.Duration
}

// run is one Suite against one engine.
type run struct {
	*testing.T
	Suite
	engine wire.Engine
	count  int
}

// Run holds an engine to the contract. open gives a fresh, ready engine with
// nothing running, and cleans it up with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) wire.Engine, suite Suite) {
	if suite.Limit == 0 {
		suite.Limit = time.Minute
	}
	for _, c := range []struct {
		name string
		test func(*run)
	}{
		{"one choice", func(r *run) { r.choices(1) }},
		{"three choices", func(r *run) { r.choices(3) }},
		{"many at once", (*run).manyAtOnce},
		{"logprobs", (*run).logprobs},
		{"cancel in every state", (*run).cancel},
		{"cancel is answered", (*run).cancelAnswered},
		{"slow reader parks only itself", (*run).slowReader},
		{"pause and resume lose nothing", (*run).pause},
		{"prepare refuses", (*run).prepareErrors},
		{"prepare is abandoned", (*run).prepareAbandoned},
		{"generate checks again", (*run).generateErrors},
		{"state turns", (*run).stateTurns},
		{"steps are told", (*run).stepsTold},
		{"after close", (*run).afterClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(&run{T: t, Suite: suite, engine: open(t)})
		})
	}
}

// reader is the one reader of a stream. It checks every promise on the order of
// events as it reads.
type reader struct {
	run      *run
	stream   *wire.Stream
	notify   chan struct{}
	prompt   *wire.Prompt
	options  wire.Options
	texts    []string
	tokens   []int
	finishes []wire.Finish
	logprobs int
	end      *wire.End
}

func (r *run) prepare() *wire.Prompt {
	r.Helper()
	r.count++
	p, err := r.engine.Prepare(r.Context(), &wire.Request{ID: fmt.Sprintf("%s-%d", r.Name(), r.count), Text: &r.Text})
	if err != nil {
		r.Fatalf("Prepare: %v", err)
	}
	return p
}

// start prepares and dispatches a generation that does not end by itself before its
// MaxTokens. Levels and lanes vary, since no promise depends on them.
func (r *run) start(o wire.Options) *reader {
	r.Helper()
	p := r.prepare()
	o.N, o.IgnoreEOS, o.MaxTokens = max(1, o.N), true, min(o.MaxTokens, p.Room)
	n := make(chan struct{}, 1)
	s := r.engine.Generate(&wire.Generation{ID: fmt.Sprintf("%s-%d", r.Name(), r.count), Serial: uint64(r.count), Prompt: p, Options: o, Notify: n,
		Level: r.count % 3, Key: int64(-r.count), Long: r.count%4 == 0, TokenGoal: time.Duration(r.count%2) * time.Millisecond})
	r.Cleanup(s.Close)
	return &reader{run: r, stream: s, notify: n, prompt: p, options: o,
		texts: make([]string, o.N), tokens: make([]int, o.N), finishes: make([]wire.Finish, o.N)}
}

// wait waits for the next notification.
func (d *reader) wait() {
	d.run.Helper()
	select {
	case <-d.notify:
	case <-time.After(d.run.Limit):
		d.run.Fatalf("no event within %v; so far %d of %v tokens", d.run.Limit, d.tokens, d.options.MaxTokens)
	}
}

// take checks and counts the events that wait, and returns how many there were.
func (d *reader) take() int {
	d.run.Helper()
	events := d.stream.Take(nil)
	for i := range events {
		d.check(&events[i])
	}
	return len(events)
}

func (d *reader) check(e *wire.Event) {
	t := d.run
	t.Helper()
	if d.end != nil {
		t.Fatalf("event %+v after the end", e)
	}
	if e.End != nil {
		d.end = e.End
		if e.End.Err == nil && slices.Contains(d.finishes, wire.FinishNone) && e.Finish == wire.FinishNone {
			t.Fatalf("a successful end with finishes %v", d.finishes)
		}
		return
	}
	switch c := e.Choice; {
	case c < 0 || c >= len(d.texts):
		t.Fatalf("an event for choice %d of %d", c, len(d.texts))
	case d.finishes[c] != wire.FinishNone:
		t.Fatalf("event %+v after the finish of its choice", e)
	case e.TokenCount < d.tokens[c]:
		t.Fatalf("choice %d went from %d tokens to %d", c, d.tokens[c], e.TokenCount)
	case !utf8.ValidString(e.Text):
		t.Fatalf("text %q is not valid UTF-8", e.Text)
	}
	d.texts[e.Choice] += e.Text
	d.tokens[e.Choice], d.finishes[e.Choice] = e.TokenCount, e.Finish
	d.logprobs += len(e.Logprobs)
	for _, l := range e.Logprobs {
		if len(l.Top) > d.options.TopLogprobs || l.Logprob > 0 {
			t.Fatalf("log-probability %+v, with %d likeliest tokens asked for", l, d.options.TopLogprobs)
		}
	}
}

// finish reads to the end and checks a success.
func (d *reader) finish() {
	t := d.run
	t.Helper()
	for d.take(); d.end == nil; d.take() {
		d.wait()
	}
	if d.end.Err != nil {
		t.Fatalf("ended with %v", d.end.Err)
	}
	sum := 0
	for i, n := range d.tokens {
		sum += n
		if d.finishes[i] == wire.FinishLength && n != d.options.MaxTokens {
			t.Errorf("choice %d finished by length with %d tokens of %d", i, n, d.options.MaxTokens)
		}
		if n > d.options.MaxTokens {
			t.Errorf("choice %d has %d tokens of at most %d", i, n, d.options.MaxTokens)
		}
	}
	u, at := d.end.Usage, d.end.Timings
	if u.Prompt != d.prompt.Length() && !t.Relays || u.Completion != sum || u.Cached < 0 || u.Cached+u.Computed != u.Prompt {
		t.Errorf("usage %+v of a prompt of %d tokens and %d made", u, d.prompt.Length(), sum)
	}
	if at.Received == 0 || at.Scheduled < at.Received || at.FirstToken < at.Scheduled || at.Finished < at.FirstToken || at.Steps < 1 {
		t.Errorf("timings out of order: %+v", at)
	}
	if t.Relays {
		t.idle()
		return
	}
	if before, after := at.BeforeFirst.Sum(), at.AfterFirst.Sum(); int64(before) != at.FirstToken-at.Received || int64(after) != at.Finished-at.FirstToken {
		t.Errorf("the parts of its time sum to %v before the first token and %v after it: %+v", before, after, at)
	}
	t.idle()
}

// idle waits until the state shows no work and no used page.
func (r *run) idle() {
	r.Helper()
	r.until("all sequences and pages to be free", func(s *wire.State) bool {
		return s.Running+s.Waiting+s.Paused == 0 && s.PagesUsed == 0
	})
}

func (r *run) until(what string, ok func(*wire.State) bool) {
	r.Helper()
	if !wait(r.Limit, func() bool { return ok(r.engine.State()) }) {
		r.Fatalf("waited for %s; state %+v", what, *r.engine.State())
	}
}
