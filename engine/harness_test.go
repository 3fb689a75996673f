package engine

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// lab is an engine under test, with what its loop let be seen.
type lab struct {
	*Engine
	t    testing.TB
	loop *loop

	onLogits func(s *sequence, logits []float32)
	unseen   bool // samplers are the engine's own, so that a device may sample

	mu   sync.Mutex
	bits map[string][]uint64 // by id and choice: a hash of each token's logits; nil keeps none
}

// Generate is the engine's, with samplers that let the lab see the logits.
func (b *lab) Generate(g *wire.Generation) *wire.Stream {
	own, err := b.newGeneration(g)
	if err == nil {
		for _, s := range own.choices {
			if s.sampler == nil || b.unseen { // of an embedder
				continue
			}
			s.sampler = &seenSampler{sampler: s.sampler, lab: b, of: s}
		}
		err = b.enter(own, g)
	}
	if err != nil {
		return wire.FailedStream(g.Notify, err)
	}
	return own.stream
}

// seenSampler shows a sequence's logits to its lab, which may change them.
type seenSampler struct {
	sampler
	lab *lab
	of  *sequence
}

func (s *seenSampler) Sample(logits []float32) (int32, bool) {
	b := s.lab
	if b.onLogits != nil {
		b.onLogits(s.of, logits)
	}
	if b.bits != nil {
		h := hashLogits(logits)
		b.mu.Lock()
		key := fmt.Sprintf("%s/%d", s.of.gen.id, s.of.choice)
		b.bits[key] = append(b.bits[key], h)
		b.mu.Unlock()
	}
	return s.sampler.Sample(logits)
}

// labSetup says how to build a lab. The hooks run on the loop's goroutine.
type labSetup struct {
	cfg      Config
	pages    int // of the paged model
	states   int // of a stateful model in its place
	windows  cache.Windows
	real     bool     // the demo model instead of the paged one
	model    computer // instead of the paged one of its own
	template string   // instead of the model's own
	onTurn   func(b *lab)
	onLogits func(s *sequence, logits []float32)
	onFault  func(error) // of the model's device; nil where it has none
}

var bitsSeed = maphash.MakeSeed()

func hashLogits(logits []float32) uint64 {
	var h maphash.Hash
	h.SetSeed(bitsSeed)
	var raw [4]byte
	for _, x := range logits {
		u := math.Float32bits(x)
		raw[0], raw[1], raw[2], raw[3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
		_, _ = h.Write(raw[:])
	}
	return h.Sum64()
}

func newLab(t testing.TB, set labSetup) *lab {
	t.Helper()
	if err := set.cfg.fill(); err != nil {
		t.Fatal(err)
	}
	e, l, err := assemble(set.cfg, labModel(t, &set))
	if err != nil {
		t.Fatal(err)
	}
	b := &lab{Engine: e, t: t, loop: l, onLogits: set.onLogits, bits: map[string][]uint64{}}
	e.start(func() { // as the loop's run, with a look at it before every turn
		if set.onFault != nil {
			defer l.onFault(set.onFault)
		}
		for more := true; more; more = l.turn() {
			if err := l.supply.pool.Check(); err != nil {
				t.Error(err)
			}
			b.checkLists()
			if set.onTurn != nil {
				set.onTurn(b)
			}
		}
		l.end()
	})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func labModel(t testing.TB, set *labSetup) loaded {
	t.Helper()
	if set.real {
		p, err := load(&set.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if set.template != "" {
			p.loadTemplate(p.chatConfig(set.template))
		}
		return p
	}
	f, err := gguf.Parse(demo.Name, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	if set.pages == 0 {
		set.pages = 256
	}
	context := set.cfg.ContextTokens
	if context == 0 {
		context = 2048
	}
	p := loaded{
		set:   kernels.Best(),
		model: stoppable{newPagedModel(tok.Size(), set.cfg.PageTokens, set.pages)}, width: tok.Size(), tokenizer: tok, tokens: tokenizer.NewCache(tok, set.cfg.TokensCacheBytes), pages: set.pages,
		info: wire.Model{ID: "paged", ContextTokens: context, VocabTokens: tok.Size(), PageTokens: set.cfg.PageTokens, Fingerprint: "fp_paged"},
	}
	if set.model != nil {
		p.model = stoppable{set.model}
	}
	p.toolFormat = set.cfg.ToolFormat
	if p.states = set.states; p.states > 0 {
		p.model = newStatefulModel(newPagedModel(tok.Size(), set.cfg.PageTokens, set.pages), set.states)
		p.info.PageBytes, p.info.StateBytes = 1000, 3001 // a checkpoint counts as four blocks
	}
	if p.windows = set.windows; p.windows.Pages > 0 {
		p.windows.Step = set.cfg.BatchTokensMax
		p.model = stoppable{&windowedModel{newPagedModel(tok.Size(), set.cfg.PageTokens, set.pages), p.windows}}
	}
	p.loadTemplate(p.chatConfig(set.template))
	return p
}

// chatConfig is that of another template with the tokenizer's own tokens.
func (p *loaded) chatConfig(template string) (chat.Config, error) {
	t := p.tokenizer
	return chat.Config{Template: template, BOS: t.Text(t.BOS()), EOS: t.Text(t.EOS())}, nil
}

// checkLists holds the loop's second invariant, on its goroutine.
func (b *lab) checkLists() {
	for i, s := range b.loop.supply.running {
		if s.kv == nil || s.gen.ended || i > 0 && inOrder(b.loop.supply.running[i-1], s) >= 0 {
			b.t.Errorf("running sequence %s/%d: pages %v, ended %v, or out of order", s.gen.id, s.choice, s.kv != nil, s.gen.ended)
		}
	}
	for _, s := range b.loop.supply.waiting {
		if s.kv != nil || s.gen.ended {
			b.t.Errorf("waiting sequence %s/%d holds pages or has ended", s.gen.id, s.choice)
		}
	}
}

// logitsBits are the hashes of one choice's logits.
func (b *lab) logitsBits(id string, choice int) []uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.bits[fmt.Sprintf("%s/%d", id, choice)])
}

// question is one request of a test.
type question struct {
	id      string
	tokens  []int32
	options wire.Options
	salt    string
	level   int
	key     int64
	long    bool
	serial  uint64
	pin     wire.Pin
}

// answer is all that a reader saw of it.
type answer struct {
	texts    []string
	counts   []int
	finishes []wire.Finish
	logprobs [][]wire.TokenLogprob
	prompt   []wire.TokenLogprob
	pieces   []wire.Piece // of the first choice, with its texts
	ids      []string     // of the calls of all choices
	vector   []float32
	end      *wire.End
}

// begin prepares and dispatches a question.
func (b *lab) begin(q question) (*wire.Stream, chan struct{}) {
	b.t.Helper()
	q.options.N = max(1, q.options.N)
	p, err := b.Prepare(context.Background(), &wire.Request{ID: q.id, Tokens: q.tokens, Salt: q.salt})
	notify := make(chan struct{}, 1)
	if err != nil {
		return wire.FailedStream(notify, wire.AsError(err)), notify
	}
	q.options.MaxTokens = min(q.options.MaxTokens, p.Room)
	return b.Generate(&wire.Generation{ID: q.id, Prompt: p, Options: q.options, Salt: q.salt, Level: q.level, Key: q.key, Long: q.long, Serial: q.serial, Pin: q.pin, Notify: notify}), notify
}

// ask is begin, and reads to the end.
func (b *lab) ask(q question) answer {
	b.t.Helper()
	s, notify := b.begin(q)
	return b.read(s, notify, max(1, q.options.N))
}

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

func (b *lab) read(s *wire.Stream, notify chan struct{}, n int) answer {
	b.t.Helper()
	defer s.Close()
	a := answer{texts: make([]string, n), counts: make([]int, n), finishes: make([]wire.Finish, n), logprobs: make([][]wire.TokenLogprob, n)}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		for _, e := range s.Take(nil) {
			if a.add(e) {
				return a
			}
		}
		select {
		case <-notify:
		case <-limit.C:
			b.t.Errorf("no end after %v; state %+v", patience, *b.State())
			a.end = &wire.End{Err: wire.Errorf(wire.Internal, "the test gave up")}
			return a
		}
	}
}

func (a *answer) add(e wire.Event) (end bool) {
	if e.End != nil {
		a.end = e.End
		return true
	}
	a.texts[e.Choice] += e.Text
	for _, p := range append([]wire.Piece{{Text: e.Text}}, e.Pieces...) {
		if p.Kind == wire.PieceCall {
			a.ids = append(a.ids, p.ID)
		}
		if last := len(a.pieces) - 1; e.Choice > 0 || p.Kind < wire.PieceCall && p.Text == "" {
			continue
		} else if last >= 0 && a.pieces[last].Kind == p.Kind && p.Text != "" {
			a.pieces[last].Text += p.Text
		} else {
			a.pieces = append(a.pieces, p)
		}
	}
	a.counts[e.Choice] = e.TokenCount
	a.logprobs[e.Choice] = append(a.logprobs[e.Choice], e.Logprobs...)
	if e.PromptLogprobs != nil {
		a.prompt = e.PromptLogprobs
	}
	if e.Embedding != nil {
		a.vector = e.Embedding
	}
	if e.Finish != wire.FinishNone {
		a.finishes[e.Choice] = e.Finish
	}
	return false
}

// askAll asks all questions at once.
func (b *lab) askAll(qs []question) []answer { return b.askAllAfter(qs, func() {}) }

// askAllAfter is askAll whose first reader calls ready, once all are dispatched,
// before it reads.
func (b *lab) askAllAfter(qs []question, ready func()) []answer {
	b.t.Helper()
	answers := make([]answer, len(qs))
	var wg sync.WaitGroup
	streams, notifies := make([]*wire.Stream, len(qs)), make([]chan struct{}, len(qs))
	for i, q := range qs {
		streams[i], notifies[i] = b.begin(q)
	}
	for i, q := range qs {
		wg.Go(func() {
			if i == 0 {
				ready()
			}
			answers[i] = b.read(streams[i], notifies[i], max(1, q.options.N))
		})
	}
	wg.Wait()
	return answers
}

// mustEnd fails the test unless a ended well.
func mustEnd(t testing.TB, q question, a answer) {
	t.Helper()
	if a.end.Err != nil {
		t.Fatalf("question %s failed: %v", q.id, a.end.Err)
	}
}

// mustIdle waits until the engine holds no sequence, and no page but those of pins.
func (b *lab) mustIdle() {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		s := b.State()
		b.inbox.mu.Lock()
		live, waiting := b.inbox.live, b.inbox.waiting
		b.inbox.mu.Unlock()
		if live == 0 && waiting == 0 && s.PagesUsed == s.PagesPinned && s.Running == 0 && s.Waiting == 0 && s.Paused == 0 {
			break
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the engine is not idle: %d live, %d waiting, %+v", live, waiting, *s)
		}
		time.Sleep(time.Millisecond)
	}
}

// prompt makes n tokens from a seed; equal seeds share their beginnings.
func prompt(seed uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, 7))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(300 + r.IntN(1500))
	}
	return tokens
}

// greedy are options that run to their length.
func greedy(n int) wire.Options { return wire.Options{N: 1, MaxTokens: n, IgnoreEOS: true} }

// mustGone waits until the loop has forgotten a generation.
func (b *lab) mustGone(id string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		b.inbox.mu.Lock()
		live := b.inbox.live
		b.inbox.mu.Unlock()
		if live == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s is still alive: %+v", id, *b.State())
		}
		time.Sleep(100 * time.Microsecond)
	}
}
