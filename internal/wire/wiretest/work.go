package wiretest

import (
	"slices"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// work is one live generation of a Fake. Fake.mu guards all that changes.
type work struct {
	// Fixed at Generate.
	fake      *Fake
	g         *wire.Generation
	maxTokens int // of each choice
	script    Script
	stream    *wire.Stream
	record    *Record

	choices []choice
	due     time.Time
	paused  bool // by the reader
	parked  bool // for want of room
	timings wire.Timings
	// Prompt tokens so far.
	computed, cached int
}

type choice struct {
	tokens   int
	finished bool
	hung     bool
}

// Pause implements wire.Control.
func (w *work) Pause() { w.pause(true) }

// Resume implements wire.Control.
func (w *work) Resume() { w.pause(false) }

func (w *work) pause(paused bool) {
	f := w.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if w.paused == paused {
		return
	}
	w.paused = paused
	f.publish()
	f.kick()
}

// Cancel implements wire.Control.
func (w *work) Cancel() {
	f := w.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	w.record.Canceled = true
	if w.script.Deaf {
		f.remove(w)
	} else {
		f.end(w, wire.Errorf(wire.Canceled, "the reader left"))
	}
	f.publish()
	f.wakeReaders()
}

// Taken implements wire.Control.
func (w *work) Taken() { w.fake.kick() }

// live counts the choices that have not finished.
func (w *work) live() int {
	n := 0
	for i := range w.choices {
		if !w.choices[i].finished {
			n++
		}
	}
	return n
}

// tokens counts the tokens of the generation: the prompt's once, and each choice's.
func (w *work) tokens() int { return len(w.g.Prompt.Tokens) + w.completion() }

func (w *work) completion() int {
	n := 0
	for i := range w.choices {
		n += w.choices[i].tokens
	}
	return n
}

// step gives every choice of w its next event, where there is room, and returns
// whether it put any. The caller holds mu.
func (f *Fake) step(w *work, now time.Time) bool {
	if w.timings.Scheduled == 0 {
		w.timings.Scheduled = wire.Monotonic()
		w.compute(len(w.g.Prompt.Tokens) - w.script.CachedTokens)
	}
	put := false
	for i := range w.choices {
		c := &w.choices[i]
		if c.finished || c.hung {
			continue
		}
		w.parked = w.stream.Room() == 0
		if w.parked {
			break
		}
		if e, ok := w.next(i); ok {
			w.stream.Put(e)
			put = true
		}
	}
	if put {
		w.timings.Steps++
		w.timings.DecodeSteps++
		f.stepping.DecodeRows++
		f.stepping.Members = append(f.stepping.Members, wire.StepMember{Serial: w.g.Serial, Tokens: 1, Level: uint8(w.g.Level), Decode: true})
		w.due = now.Add(w.script.Delay)
		w.record.Tokens = w.completion()
	}
	switch {
	case w.script.Err != nil && w.exhausted():
		f.end(w, w.script.Err)
	case w.live() == 0:
		f.end(w, nil)
	case put:
		f.woken = append(f.woken, w.stream)
	}
	return put
}

// compute counts the cached part of the prompt, and further tokens as computed.
func (w *work) compute(tokens int) {
	w.computed, w.cached, w.timings.PrefillTokens = tokens, w.script.CachedTokens, tokens
	w.fake.last.PrefillTokens += uint64(w.computed)
	w.fake.last.CachedTokens += uint64(w.cached)
}

// next is the next event of choice i: a piece, and the finish with the last one.
// ok is false where the script has no further piece and does not finish.
func (w *work) next(i int) (e wire.Event, ok bool) {
	c, s := &w.choices[i], &w.script
	e = wire.Event{Choice: i}
	text, more := s.piece(i, c.tokens)
	if more {
		if c.tokens < len(s.Split) {
			e.Pieces = s.Split[c.tokens]
			if len(e.Pieces) > 0 && e.Pieces[0].Kind == wire.PieceContent {
				text, e.Pieces = e.Pieces[0].Text, e.Pieces[1:]
			}
		}
		c.tokens++
		w.fake.last.DecodeTokens++
		e.Text = text
		if w.timings.FirstToken == 0 {
			w.timings.FirstToken = wire.Monotonic()
			e.Cached = w.cached
			if i == 0 && w.g.Options.PromptLogprobs {
				e.PromptLogprobs = promptLogprobs(w.g)
			}
		}
		if w.g.Options.Logprobs {
			e.Logprobs = []wire.TokenLogprob{logprob(text, w.g.Options.TopLogprobs)}
		}
	}
	e.TokenCount = c.tokens
	_, another := s.piece(i, c.tokens)
	switch {
	case more && c.tokens >= w.maxTokens:
		e.Finish = wire.FinishLength
	case another:
	case s.Hang || s.Err != nil:
		c.hung = true
		return e, more
	case s.Finish != wire.FinishNone:
		e.Finish = s.Finish
	default:
		e.Finish = wire.FinishStop
	}
	c.finished = e.Finish != wire.FinishNone
	return e, true
}

// exhausted reports whether every choice has finished or is out of pieces.
func (w *work) exhausted() bool {
	return !slices.ContainsFunc(w.choices, func(c choice) bool { return !c.finished && !c.hung })
}

// end puts the last event and forgets w. The caller holds mu.
func (f *Fake) end(w *work, err *wire.Error) {
	if w.timings.Scheduled == 0 && w.script.PrefillTokens > 0 {
		w.timings.Scheduled = wire.Monotonic()
		w.compute(w.script.PrefillTokens)
	}
	w.timings.Finished = wire.Monotonic()
	w.divide()
	end := &wire.End{Err: err, Timings: w.timings, Usage: wire.Usage{Prompt: len(w.g.Prompt.Tokens), Cached: w.cached, Computed: w.computed, Completion: w.completion()}}
	w.record.Ended, w.record.Err = true, err
	w.stream.Put(wire.Event{End: end})
	f.remove(w)
	f.woken = append(f.woken, w.stream)
}

// divide attributes the time before the first step to waiting, and the rest to its
// own computing.
func (w *work) divide() {
	t := &w.timings
	first, scheduled := t.FirstToken, t.Scheduled
	if first == 0 {
		first = t.Finished
	}
	if scheduled == 0 {
		scheduled = first
	}
	t.BeforeFirst[wire.PartPlaces] = time.Duration(scheduled - t.Received)
	t.BeforeFirst[wire.PartOwn] = time.Duration(first - scheduled)
	t.AfterFirst[wire.PartOwn] = time.Duration(t.Finished - first)
}

func (f *Fake) remove(w *work) {
	if i := slices.Index(f.works, w); i >= 0 {
		f.works = slices.Delete(f.works, i, i+1)
		f.kick()
	}
}

// logprob is the fake's log-probability of a piece: one token with the piece's
// bytes, and top further tokens, each less likely than the one before.
func logprob(text string, top int) wire.TokenLogprob {
	l := wire.TokenLogprob{ID: tokenOf(text), Bytes: []byte(text), Logprob: -0.25}
	for i := range top {
		b := []byte(text)
		if i > 0 {
			b = []byte{'a' + byte(i%26)}
		}
		l.Top = append(l.Top, wire.TopLogprob{ID: tokenOf(string(b)), Bytes: b, Logprob: -0.25 - float32(i)})
	}
	return l
}

func tokenOf(text string) int32 {
	if text == "" {
		return 0
	}
	return int32(text[0])
}
