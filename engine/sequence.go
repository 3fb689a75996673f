package engine

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/cache/disk"
	"github.com/forebay-io/forebay/engine/mask"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/internal/chars"
	"github.com/forebay-io/forebay/internal/wire"
)

// generation is one dispatched request: a stream, and a sequence for each
// choice. It is the reader's Control: pause, resume and cancel set flags that
// the loop reads between two steps.
type generation struct {
	// Fixed at Generate.
	id           string
	serial       uint64
	salt         string
	level        int
	key          int64
	long         bool
	tokenGoal    time.Duration
	pin          wire.Pin
	options      wire.Options // MaxTokens is set
	promptTokens int
	stream       *wire.Stream
	inbox        *inbox

	// Set by the reader, read by the loop.
	pauseWanted  atomic.Bool
	cancelWanted atomic.Bool
	// Set by the loop, read by the reader: Taken must wake the loop.
	parked atomic.Bool

	// Guarded by inbox.mu.
	posted  bool // the loop has it, or will take it
	touched bool

	// Owned by the loop.
	choices        []*sequence // those that have not finished
	started        bool        // no longer counted as waiting
	forked         bool        // the prompt is computed and every choice has its own pages
	ended          bool
	paused         bool
	completion     int  // tokens of all choices
	reasoning      int  // those of them that are reasoning, of choices that have finished
	eventsAdded    bool // put and not yet woken
	promptLogprobs []wire.TokenLogprob
	restriction    *restriction // nil for none
	pinned         int          // tokens, as pin asked
	pinRefused     wire.PinRefusal

	account account // owned by the loop's ledger
}

// Pause implements wire.Control.
func (g *generation) Pause() { g.pauseWanted.Store(true); g.inbox.touch(g) }

// Resume implements wire.Control.
func (g *generation) Resume() { g.pauseWanted.Store(false); g.inbox.touch(g) }

// Cancel implements wire.Control.
func (g *generation) Cancel() { g.cancelWanted.Store(true); g.inbox.touch(g) }

// Taken implements wire.Control.
func (g *generation) Taken() {
	if g.parked.Load() {
		g.inbox.kick()
	}
}

// held reports whether g must not compute now: its reader asked for a pause, or
// its stream has no room for another event of each choice.
func (g *generation) held() bool { return g.paused || g.parked.Load() }

// look parks g, or lets it go on, by the room in its stream.
func (g *generation) look() {
	room := g.stream.Room() >= len(g.choices)
	if !room {
		// Set first, then look again: a reader that takes events in between
		// either sees the flag, or makes room that is seen here.
		g.parked.Store(true)
		room = g.stream.Room() >= len(g.choices)
	}
	g.parked.Store(!room)
}

// sampler chooses a sequence's tokens; package sample has the promises.
type sampler interface {
	Sample(logits []float32) (id int32, ok bool)
	Accept(id int32)
}

// sequence is one choice: its tokens, and how far their keys and values exist.
//
//	tokens  [ prompt ······ | output ··· )
//	pages   [0 ······ computed)            the rest is pending
//
// Prefill, decode and recomputing after a preemption are the same: some pending
// tokens are computed, and when none is left the next token is sampled.
type sequence struct {
	gen     *generation
	choice  int
	rank    uint64 // unique in the engine; smaller is older
	tokens  []int32
	kv      *cache.Seq // nil while it waits: it holds no pages
	sampler sampler
	pool    *model.Pooler // in place of a sampler where it makes an embedding
	out     output
	matcher *mask.Matcher // nil for free text

	// Of the next token, where masked says so. While the sequence is ahead's, guarded by it.
	mask    []uint64
	maskErr error
	masked  bool

	onDisk []disk.ID // of its first blocks, where some are to be read; else nil
	readBy time.Time // when it computes what has not been read
	reads  bool      // it is left out of this turn, since its next block is being read

	generated  int
	cachedThen int       // tokens that were cached when it began to wait
	since      uint64    // the last turn that gave it a share, or the one it was let in
	inStep     uint64    // the last step it computed in
	waits      wire.Part // why it has no pages
	leftOut    wire.Part // why it was not in the last step though it has pages
	// Log-probabilities of tokens whose text has not begun to leave.
	logprobs []heldLogprob
}

type heldLogprob struct {
	wire.TokenLogprob
	start int // of the token in the answer's content, or −1 where it is no content
}

// goOn lets the choice's text complete the character that the prompt's ends within.
func (s *sequence) goOn(prompt string) {
	open := prompt[len(prompt)-chars.Open(prompt):]
	s.out.text.Continue(open)
	s.out.content = len(open)
}

// computed is how many leading tokens have keys and values.
func (s *sequence) computed() int {
	if s.kv == nil {
		return 0
	}
	return s.kv.Len()
}

func (s *sequence) pending() int { return len(s.tokens) - s.computed() }

// prefill is how many tokens it has to compute before its next one is sampled.
// While it waits, this counts the tokens that were not cached when the wait began.
func (s *sequence) prefill() int {
	switch {
	case s.decoding():
		return 0
	case s.kv == nil:
		return len(s.tokens) - s.cachedThen
	}
	return s.pending()
}

// candidate is what the composer needs to know of s.
func (s *sequence) candidate(index int) step.Candidate {
	return step.Candidate{
		Pending: s.pending(), Context: s.computed(), Decode: s.decoding(), Level: s.gen.level, Long: s.gen.long, Key: s.gen.key,
		Arrival: s.rank, Since: s.since, Goal: s.gen.tokenGoal, Index: index,
	}
}

// places is how many running places a sequence takes: its siblings that are
// to be forked from it count.
func (s *sequence) places() int {
	if s.gen.forked {
		return 1
	}
	return len(s.gen.choices)
}

// inOrder compares by level and then by age: an earlier sequence may take the
// pages of a later one, never the other way round.
func inOrder(a, b *sequence) int {
	return cmp.Or(cmp.Compare(a.gen.level, b.gen.level), cmp.Compare(a.rank, b.rank))
}

// decoding reports whether all that is pending is the token sampled last.
func (s *sequence) decoding() bool { return s.generated > 0 && s.pending() == 1 }

// wantsPrompt reports whether log-probabilities of the prompt are still missing.
func (s *sequence) wantsPrompt() bool {
	return s.gen.options.PromptLogprobs && s.choice == 0 && s.generated == 0 && len(s.gen.promptLogprobs) < s.gen.promptTokens
}

// wantsAll reports whether every token has to be computed, none taken from the cache.
func (s *sequence) wantsAll() bool { return s.wantsPrompt() || s.pool != nil && s.pool.Whole() }

// reusable are the tokens that may be attached from the cache.
func (s *sequence) reusable() []int32 {
	if s.wantsAll() {
		return nil
	}
	return s.tokens
}

// logitRows is how many of the next n tokens need logits: all of a prompt whose
// log-probabilities are asked for, otherwise only the last pending token.
func (s *sequence) logitRows(n int) int {
	switch {
	case s.pool != nil:
		return s.pool.Rows(s.computed(), n, n == s.pending())
	case s.wantsPrompt():
		return n
	case n == s.pending():
		return 1
	}
	return 0
}
