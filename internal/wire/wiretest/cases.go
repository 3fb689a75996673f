package wiretest

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

func (r *run) choices(n int) { r.start(wire.Options{N: n, MaxTokens: r.Tokens}).finish() }

func (r *run) manyAtOnce() {
	var all []*reader
	for i := range 12 {
		all = append(all, r.start(wire.Options{N: 1 + i%2, MaxTokens: 1 + i*r.Tokens/12}))
	}
	for _, d := range all {
		for d.take(); d.end == nil; d.take() {
			d.wait()
		}
	}
	for _, d := range all {
		d.finish()
	}
}

func (r *run) logprobs() {
	if r.Relays {
		r.Skip("log-probabilities are passed on as JSON")
	}
	d := r.start(wire.Options{MaxTokens: r.Tokens, Logprobs: true, TopLogprobs: 2})
	d.finish()
	if d.logprobs != d.tokens[0] {
		r.Errorf("%d log-probabilities of %d tokens", d.logprobs, d.tokens[0])
	}
	d = r.start(wire.Options{MaxTokens: 1})
	d.finish()
	if d.logprobs != 0 {
		r.Errorf("%d log-probabilities that were not asked for", d.logprobs)
	}
}

// cancel closes streams at once, after the first event, mid-stream, while
// parked, while paused, with many choices, and after the end.
func (r *run) cancel() {
	long := wire.Options{MaxTokens: r.LongTokens}
	for name, reach := range map[string]func(*reader){
		"at once":      func(*reader) {},
		"first event":  (*reader).wait,
		"paused":       func(d *reader) { d.wait(); d.stream.Pause() },
		"paused early": func(d *reader) { d.stream.Pause() },
		"parked":       func(d *reader) { r.until("it to park", func(s *wire.State) bool { return s.Paused > 0 }) },
		"mid-stream": func(d *reader) {
			for d.tokens[0] < 3 {
				d.wait()
				d.take()
			}
		},
	} {
		for _, n := range []int{1, 3} {
			long.N = n
			d := r.start(long)
			reach(d)
			d.stream.Close()
			d.stream.Close()
			if events := d.stream.Take(nil); len(events) != 0 {
				r.Errorf("%s: %d events after Close", name, len(events))
			}
			r.idle()
		}
	}
	d := r.start(wire.Options{MaxTokens: 1})
	d.finish()
	d.stream.Pause()
	d.stream.Resume()
	d.stream.Close()
	r.start(wire.Options{MaxTokens: 2}).finish()
}

// cancelAnswered cancels generations in several states. Each is answered by one
// end, with what was computed, and nothing else; a stream that has ended keeps the
// end that it has. The usages add up to the engine's counters.
func (r *run) cancelAnswered() {
	var sum wire.Totals
	before := r.engine.State().Totals
	count := func(d *reader) {
		u := d.end.Usage
		n, computed := len(d.prompt.Tokens), d.end.Timings.PrefillTokens
		if r.Relays {
			n, computed = u.Prompt, u.Computed
		}
		sum.PrefillTokens += uint64(computed)
		sum.CachedTokens += uint64(u.Cached)
		sum.DecodeTokens += uint64(u.Completion)
		if u.Prompt != n || u.Cached+u.Computed > n || u.Completion > 0 && u.Cached+u.Computed != n {
			r.Errorf("usage %+v of a prompt of %d tokens", u, n)
		}
	}
	for name, reach := range map[string]func(*reader){
		"at once":     func(*reader) {},
		"first event": (*reader).wait,
		"paused":      func(d *reader) { d.wait(); d.stream.Pause() },
		"parked":      func(d *reader) { r.until("it to park", func(s *wire.State) bool { return s.Paused > 0 }) },
	} {
		for _, n := range []int{1, 3} {
			d := r.start(wire.Options{N: n, MaxTokens: r.LongTokens})
			reach(d)
			d.stream.Cancel()
			d.stream.Cancel()
			for d.take(); d.end == nil; d.take() {
				d.wait()
			}
			if d.end.Err == nil || d.end.Err.Kind != wire.Canceled || d.tokens[0] > 0 {
				r.Errorf("%s: ended with %v after %d tokens", name, d.end.Err, d.tokens[0])
			}
			count(d)
			d.stream.Close()
			r.idle()
		}
	}
	d := r.start(wire.Options{MaxTokens: 1})
	r.until("it to end", func(s *wire.State) bool { return s.DecodeTokens > before.DecodeTokens+sum.DecodeTokens })
	r.idle()
	d.stream.Cancel()
	for d.end == nil {
		if events := d.stream.Take(nil); len(events) > 0 {
			d.end = events[0].End
			continue
		}
		d.wait()
	}
	if d.end.Err != nil {
		r.Errorf("a cancel after the end: %v", d.end.Err)
	}
	count(d)
	for i := range 3 {
		d := r.start(wire.Options{N: 1 + i, MaxTokens: 2 + i})
		d.finish()
		count(d)
	}
	now := r.engine.State().Totals
	if now.PrefillTokens-before.PrefillTokens != sum.PrefillTokens || now.CachedTokens-before.CachedTokens != sum.CachedTokens || now.DecodeTokens-before.DecodeTokens != sum.DecodeTokens {
		r.Errorf("the engine counted %+v, and %+v before; the ends sum to %+v", now, before, sum)
	}
}

func (r *run) slowReader() {
	slow := r.start(wire.Options{MaxTokens: r.LongTokens})
	r.until("the slow reader's generation to park", func(s *wire.State) bool { return s.Paused == 1 && s.Running == 0 })
	if n := slow.stream.Waiting(); n > r.BufferMax {
		r.Errorf("%d events wait, over the bound of %d", n, r.BufferMax)
	}
	fast := r.start(wire.Options{MaxTokens: r.Tokens})
	for fast.take(); fast.end == nil; fast.take() {
		fast.wait()
	}
	if fast.end.Err != nil {
		r.Errorf("the fast reader: %v", fast.end.Err)
	}
	slow.finish()
	if slow.tokens[0] != slow.options.MaxTokens {
		r.Errorf("the slow reader got %d tokens of %d", slow.tokens[0], slow.options.MaxTokens)
	}
}

func (r *run) pause() {
	whole := r.start(wire.Options{MaxTokens: r.LongTokens, Seed: 7})
	whole.finish()
	d := r.start(wire.Options{MaxTokens: r.LongTokens, Seed: 7})
	d.wait()
	for range 3 {
		d.stream.Pause()
		d.stream.Pause()
		r.until("the pause", func(s *wire.State) bool { return s.Running == 0 })
		d.take()
		d.stream.Resume()
		d.stream.Resume()
		if d.end != nil {
			break
		}
		d.wait()
	}
	d.finish()
	if d.texts[0] != whole.texts[0] || d.tokens[0] != whole.tokens[0] {
		r.Errorf("paused: %d tokens, %q; whole: %d tokens, %q", d.tokens[0], d.texts[0], whole.tokens[0], whole.texts[0])
	}
}

func (r *run) prepareErrors() {
	text := r.Text
	long := make([]int32, r.ContextTokens+1)
	for name, c := range map[string]struct {
		request wire.Request
		want    wire.Kind
	}{
		"nothing given":     {wire.Request{}, wire.Invalid},
		"two given":         {wire.Request{Text: &text, Tokens: []int32{1}}, wire.Invalid},
		"empty prompt":      {wire.Request{Tokens: []int32{}}, wire.Invalid},
		"empty messages":    {wire.Request{Messages: json.RawMessage(`[]`)}, wire.Invalid},
		"broken messages":   {wire.Request{Messages: json.RawMessage(`{"role":`)}, wire.Invalid},
		"unknown token":     {wire.Request{Tokens: []int32{1 << 30}}, wire.Invalid},
		"negative token":    {wire.Request{Tokens: []int32{-1}}, wire.Invalid},
		"over the context":  {wire.Request{Tokens: long}, wire.ContextLength},
		"fills the context": {wire.Request{Tokens: long[:r.ContextTokens]}, wire.ContextLength},
	} {
		if r.Relays && strings.HasSuffix(name, " token") {
			continue // the vocabulary is the other server's
		}
		c.request.ID = "errors-" + name
		_, err := r.engine.Prepare(r.Context(), &c.request)
		if err == nil {
			r.Errorf("%s: taken", name)
		} else if e := wire.AsError(err); e.Kind != c.want || e.Message == "" {
			r.Errorf("%s: %v, want kind %v", name, e, c.want)
		}
	}
	p := r.prepare()
	if want := r.ContextTokens - p.Length(); p.Room != want {
		r.Errorf("there is room for %d tokens, not %d", p.Room, want)
	}
}

func (r *run) prepareAbandoned() {
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	_, err := r.engine.Prepare(ctx, &wire.Request{ID: "abandoned", Text: &r.Text})
	if err == nil || wire.AsError(err).Kind != wire.Canceled {
		r.Errorf("with a cancelled context: %v, want kind %v", err, wire.Canceled)
	}
}

// generateErrors tries generations that our gateway never asks for.
func (r *run) generateErrors() {
	p := r.prepare()
	one := wire.Options{N: 1}
	for name, g := range map[string]*wire.Generation{
		"no prompt":        {Options: one},
		"empty prompt":     {Prompt: &wire.Prompt{}, Options: one},
		"unknown token":    {Prompt: &wire.Prompt{Tokens: []int32{1 << 30}}, Options: one},
		"no choice":        {Prompt: p},
		"many choices":     {Prompt: p, Options: wire.Options{N: 1 << 30}},
		"no such level":    {Prompt: p, Options: one, Level: -1},
		"negative goal":    {Prompt: p, Options: one, TokenGoal: -1},
		"negative length":  {Prompt: p, Options: wire.Options{N: 1, MaxTokens: -1}},
		"too long":         {Prompt: p, Options: wire.Options{N: 1, MaxTokens: p.Room + 1}},
		"biased strangers": {Prompt: p, Options: wire.Options{N: 1, LogitBias: []wire.LogitBias{{Token: 1 << 30}}}},
		"many stops":       {Prompt: p, Options: wire.Options{N: 1, Stop: make([]string, wire.StopsMax+1)}},
	} {
		if r.Relays && name == "biased strangers" {
			continue
		}
		notify := make(chan struct{}, 1)
		g.ID, g.Notify = "changed-"+name, notify
		end := r.failed(r.engine.Generate(g), notify)
		if end.Kind != wire.Invalid && end.Kind != wire.ContextLength {
			r.Errorf("%s: %v, want an error of the request", name, end)
		}
	}
	r.idle()
	r.start(wire.Options{MaxTokens: 2}).finish()
}

// failed reads a stream that ends with an error and nothing before it.
func (r *run) failed(s *wire.Stream, notify chan struct{}) *wire.Error {
	r.Helper()
	defer s.Close()
	d := &reader{run: r, stream: s, notify: notify}
	for d.take(); d.end == nil; d.take() {
		d.wait()
	}
	if d.end.Err == nil {
		r.Fatal("the generation succeeded")
	}
	return d.end.Err
}

func (r *run) stateTurns() {
	first := r.engine.State()
	if first.Err != nil || first.Model.ContextTokens != r.ContextTokens {
		r.Fatalf("state %+v", *first)
	}
	r.until("the idle loop to turn", func(s *wire.State) bool { return s.At > first.At })
	if now := wire.Monotonic(); r.engine.State().At > now {
		r.Errorf("the state is from the future: %v", time.Duration(r.engine.State().At-now))
	}
	r.start(wire.Options{MaxTokens: 2}).finish()
	r.until("the totals to move", func(s *wire.State) bool { return s.Step > first.Step && s.DecodeTokens > first.DecodeTokens })
}

// stepsTold reads the log of steps while some generations run. The log has each step
// once and in order, and each generation is in as many steps as its timings say.
func (r *run) stepsTold() {
	if r.Relays {
		r.Skip("the steps of another server are not known")
	}
	from := r.engine.State().Steps.Added()
	var all []*reader
	for i := range 5 {
		all = append(all, r.start(wire.Options{MaxTokens: 1 + i*r.Tokens/5}))
	}
	last, serial := uint64(0), uint64(r.count)
	steps := map[uint64]int{} // by serial
	hear := func(s *wire.StepRecord) bool {
		if last != 0 && s.Step != last+1 {
			r.Errorf("step %d after step %d", s.Step, last)
		}
		last = s.Step
		r.checkRecord(s)
		seen := map[uint64]bool{}
		for _, m := range s.Members {
			if !seen[m.Serial] {
				seen[m.Serial] = true
				steps[m.Serial]++
			}
		}
		return true
	}
	for _, d := range all {
		for d.take(); d.end == nil; d.take() {
			d.wait()
			from = r.engine.State().Steps.After(from, hear)
		}
	}
	for i, d := range all {
		d.finish()
		from = r.engine.State().Steps.After(from, hear)
		if got, want := steps[serial-uint64(len(all)-1-i)], d.end.Timings.Steps; got != want {
			r.Errorf("generation %d was in %d steps by the records; want %d", i, got, want)
		}
	}
}

// checkRecord checks what every record promises.
func (r *run) checkRecord(s *wire.StepRecord) {
	r.Helper()
	decodes, prefill, own := 0, 0, time.Duration(0)
	for _, m := range s.Members {
		own += m.Own
		if m.Decode {
			decodes++
		} else {
			prefill += m.Tokens
		}
	}
	switch took := time.Duration(s.Ended - s.Began); {
	case took < 0 || s.Gap < 0 || s.Idle < 0 || s.GivenUp < 0 || len(s.Members) == 0:
		r.Errorf("a record of no step: %+v", *s)
	case s.MembersMore == 0 && (own != took || decodes != s.DecodeRows || prefill != s.PrefillTokens):
		r.Errorf("the members' parts sum to %v, %d rows and %d tokens: %+v", own, decodes, prefill, *s)
	}
}

func (r *run) afterClose() {
	if r.Close == nil {
		r.Skip("this engine is not closed by its user")
	}
	d := r.start(wire.Options{MaxTokens: r.LongTokens})
	p := d.prompt
	d.wait()
	r.Close(r.engine)
	for d.take(); d.end == nil; d.take() {
		d.wait()
	}
	r.gone("a live stream", d.end.Err)
	_, err := r.engine.Prepare(context.Background(), &wire.Request{ID: "late", Text: &r.Text})
	if err == nil {
		r.Fatal("Prepare after Close succeeded")
	}
	r.gone("Prepare", wire.AsError(err))
	notify := make(chan struct{}, 1)
	r.gone("Generate", r.failed(r.engine.Generate(&wire.Generation{ID: "later", Prompt: p, Options: wire.Options{N: 1}, Notify: notify}), notify))
	r.gone("State", r.engine.State().Err)
}

func (r *run) gone(what string, err *wire.Error) {
	r.Helper()
	if err == nil || err.Kind != wire.Unavailable && err.Kind != wire.Draining {
		r.Errorf("%s after Close: %v, want unavailable or draining", what, err)
	}
}
