package engine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/internal/wire"
)

// Case D06.
func TestWhollyCachedPromptOfWholePages(t *testing.T) {
	b := newLab(t, labSetup{})
	for _, n := range []int{16, 32, 48, 64, 80, 1} {
		q := question{id: fmt.Sprint("cold", n), tokens: prompt(uint64(n), n), options: greedy(5)}
		cold := b.ask(q)
		q.id = fmt.Sprint("warm", n)
		warm := b.ask(q)
		mustEnd(t, q, cold)
		mustEnd(t, q, warm)
		if want := (n - 1) / 16 * 16; warm.end.Usage.Cached != want || cold.end.Usage.Cached != 0 {
			t.Errorf("%d tokens: cached %d then %d; want 0 then %d", n, cold.end.Usage.Cached, warm.end.Usage.Cached, want)
		}
		if warm.texts[0] != cold.texts[0] || !slices.Equal(b.logitsBits(q.id, 0), b.logitsBits(fmt.Sprint("cold", n), 0)) {
			t.Errorf("%d tokens: the warm run differs from the cold one", n)
		}
	}
}

// Case D07.
func TestEveryLengthAroundPageBorders(t *testing.T) {
	b := newLab(t, labSetup{})
	seed := uint64(0)
	for n := 1; n <= 48; n++ {
		for _, output := range []int{1, 16 - n%16, 17 - n%16, 18} {
			seed++
			q := question{id: fmt.Sprintf("%d+%d", n, output), tokens: prompt(seed, n), options: greedy(output)}
			a := b.ask(q)
			mustEnd(t, q, a)
			if a.counts[0] != output || a.finishes[0] != wire.FinishLength || a.end.Usage != (wire.Usage{Prompt: n, Computed: n, Completion: output}) {
				t.Fatalf("%s: %d tokens, finish %v, usage %+v", q.id, a.counts[0], a.finishes[0], a.end.Usage)
			}
			q.id += " again"
			if again := b.ask(q); again.end.Usage.Cached != (n-1)/16*16 || again.texts[0] != a.texts[0] {
				t.Fatalf("%s: cached %d; want %d and the same text", q.id, again.end.Usage.Cached, (n-1)/16*16)
			}
		}
	}
	b.mustIdle()
}

// Case D10.
func TestMoreWorkThanThePoolHolds(t *testing.T) {
	const pages = 64
	b := newLab(t, labSetup{pages: pages, cfg: Config{WaitingMax: 64}})
	var qs []question
	for i := range 30 {
		qs = append(qs, question{id: fmt.Sprint("small", i), tokens: prompt(uint64(i), 100), options: greedy(66)})
	}
	for i := range 2 {
		qs = slices.Insert(qs, 10*i, question{id: fmt.Sprint("giant", i), tokens: prompt(uint64(1000+i), 300), options: greedy(310)})
	}
	for i, a := range b.askAll(qs) {
		mustEnd(t, qs[i], a)
		if a.counts[0] != qs[i].options.MaxTokens {
			t.Errorf("%s made %d tokens; want %d", qs[i].id, a.counts[0], qs[i].options.MaxTokens)
		}
		alone := newLab(t, labSetup{}).ask(qs[i])
		if alone.texts[0] != a.texts[0] {
			t.Errorf("%s: text differs from the run alone", qs[i].id)
		}
	}
	if b.State().Preempted == 0 {
		t.Error("nothing was preempted: the pool was not short")
	}
	b.mustIdle()
}

// Case D12.
func TestCancelAtEveryStepThenAskAgain(t *testing.T) {
	q := question{id: "cold", tokens: prompt(3, 70), options: greedy(40)}
	ref := newLab(t, labSetup{})
	cold := ref.ask(q)
	more := question{id: "more", tokens: append(slices.Clone(q.tokens), prompt(4, 30)...), options: greedy(20)}
	coldMore := ref.ask(more)
	for step := range 50 {
		var victim *wire.Stream
		ready := make(chan struct{})
		b := newLab(t, labSetup{cfg: Config{BatchTokensMax: 7}, onTurn: func(b *lab) {
			if b.loop.ledger.total.Step == uint64(step) && len(b.loop.supply.running) > 0 || b.loop.ledger.total.Step > uint64(step) {
				<-ready
				victim.Close()
			}
		}})
		s, _ := b.begin(question{id: "victim", tokens: q.tokens, options: greedy(200)})
		victim = s
		close(ready)
		b.mustGone("victim")
		b.mustIdle()
		if again := b.ask(q); again.texts[0] != cold.texts[0] || !slices.Equal(b.logitsBits("cold", 0), ref.logitsBits("cold", 0)) {
			t.Fatalf("cancelled at step %d: the answer differs from a cold run's", step)
		}
		if again := b.ask(more); again.texts[0] != coldMore.texts[0] {
			t.Fatalf("cancelled at step %d: the continued answer differs from a cold run's", step)
		}
	}
}

// Case D14.
func TestReuseEndsAtTheFirstBlockThatDiffers(t *testing.T) {
	b := newLab(t, labSetup{})
	base := prompt(5, 120)
	b.ask(question{id: "base", tokens: base, options: greedy(4)})
	edited, deleted, inserted := slices.Clone(base), slices.Delete(slices.Clone(base), 40, 50), slices.Insert(slices.Clone(base), 55, 300, 301)
	edited[36]++
	qs := []question{
		{id: "full", tokens: base}, {id: "edited", tokens: edited}, {id: "deleted", tokens: deleted},
		{id: "inserted", tokens: inserted}, {id: "miss", tokens: prompt(6, 90)},
	}
	for i := range qs {
		qs[i].options = greedy(10)
	}
	want := []int{112, 32, 32, 48, 0}
	for i, a := range b.askAll(qs) {
		mustEnd(t, qs[i], a)
		if a.end.Usage.Cached != want[i] {
			t.Errorf("%s: %d tokens cached; want %d", qs[i].id, a.end.Usage.Cached, want[i])
		}
		if cold := newLab(t, labSetup{}).ask(qs[i]); cold.texts[0] != a.texts[0] {
			t.Errorf("%s: the answer differs from a cold run's", qs[i].id)
		}
	}
}

// Case D04.
func TestSaltSeparatesReuse(t *testing.T) {
	b := newLab(t, labSetup{})
	q := question{id: "a", tokens: prompt(8, 64), options: greedy(2), salt: "a"}
	b.ask(q)
	if again := b.ask(q); again.end.Usage.Cached != 48 {
		t.Errorf("the same salt reused %d tokens; want 48", again.end.Usage.Cached)
	}
	q.salt = "b"
	if other := b.ask(q); other.end.Usage.Cached != 0 {
		t.Errorf("another salt reused %d tokens; want 0", other.end.Usage.Cached)
	}
}

func TestNumbersThatAreNotFiniteEndTheirOwnRow(t *testing.T) { // numbers that are not finite end their own row
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, spoil := range map[string]func(x []float32){
		"nan first": func(x []float32) { x[0] = nan },
		"nan mid":   func(x []float32) { x[len(x)/2] = nan },
		"inf last":  func(x []float32) { x[len(x)-1] = inf },
		"all nan": func(x []float32) {
			for i := range x {
				x[i] = nan
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, labSetup{onLogits: func(s *sequence, x []float32) {
				if s.gen.id == "bad" && s.generated == 3 {
					spoil(x)
				}
			}})
			qs := []question{{id: "good1", tokens: prompt(1, 20)}, {id: "bad", tokens: prompt(2, 20)}, {id: "good2", tokens: prompt(3, 20)}}
			for i := range qs {
				qs[i].options = greedy(20)
			}
			answers := b.askAll(qs)
			if err := answers[1].end.Err; err == nil || err.Kind != wire.NonFinite {
				t.Errorf("the bad row ended with %v; want %v", err, wire.NonFinite)
			}
			b.mustIdle()
			if n := b.State().NonFinite; n != 1 {
				t.Errorf("%d rows counted; want 1", n)
			}
			for _, i := range []int{0, 2} {
				mustEnd(t, qs[i], answers[i])
				if alone := newLab(t, labSetup{}).ask(qs[i]); alone.texts[0] != answers[i].texts[0] {
					t.Errorf("%s was disturbed", qs[i].id)
				}
			}
		})
	}
}

func TestMasksAndTemperaturesStayInTheirRows(t *testing.T) { // masks and temperatures stay in their rows
	mask := func(s *sequence, x []float32) {
		if s.gen.id == "masked" {
			for i := range x {
				if i%3 > 0 {
					x[i] = float32(math.Inf(-1))
				}
			}
		}
	}
	sampled := greedy(30)
	sampled.Temperature, sampled.Seed = 0.8, 42
	qs := []question{{id: "masked", tokens: prompt(1, 20), options: greedy(30)}, {id: "sampled", tokens: prompt(1, 20), options: sampled}}
	together := newLab(t, labSetup{onLogits: mask}).askAll(qs)
	for i := range qs {
		mustEnd(t, qs[i], together[i])
		if alone := newLab(t, labSetup{onLogits: mask}).ask(qs[i]); alone.texts[0] != together[i].texts[0] {
			t.Errorf("%s differs from its run alone", qs[i].id)
		}
	}
}

func TestSeedCountsWhateverTheNeighboursDo(t *testing.T) { // a seed counts whatever the neighbours do
	seeded := greedy(60)
	seeded.Temperature, seeded.Seed = 0.8, 42
	q := question{id: "seeded", tokens: prompt(1, 20), options: seeded}
	alone := newLab(t, labSetup{}).ask(q)
	other := seeded
	other.Seed, other.MaxTokens = 999, 200
	if a := newLab(t, labSetup{}).askAll([]question{q, {id: "n", tokens: prompt(1, 20), options: other}}); a[0].texts[0] != alone.texts[0] {
		t.Error("a neighbour changed the seeded answer")
	} else if a[1].texts[0][:20] == alone.texts[0][:20] {
		t.Error("another seed gave the same answer: the seed is not used")
	}
	other.MaxTokens = 30 // leaves half-way
	if a := newLab(t, labSetup{}).askAll([]question{q, {id: "n", tokens: prompt(1, 20), options: other}}); a[0].texts[0] != alone.texts[0] {
		t.Error("a neighbour that left changed the seeded answer")
	}
}

func TestAnyChunkingGivesTheSameAnswer(t *testing.T) { // any chunking
	q := question{id: "q", tokens: prompt(1, 100), options: greedy(20)}
	whole := newLab(t, labSetup{})
	want := whole.ask(q)
	for _, chunk := range []int{1, 7, 16, 17} {
		b := newLab(t, labSetup{cfg: Config{BatchTokensMax: chunk}})
		got := b.ask(q)
		mustEnd(t, q, got)
		if got.texts[0] != want.texts[0] || !slices.Equal(b.logitsBits("q", 0), whole.logitsBits("q", 0)) {
			t.Errorf("chunks of %d give another answer", chunk)
		}
		if steps := got.end.Timings.Steps; steps != (100+chunk-1)/chunk+19 {
			t.Errorf("chunks of %d took %d steps; want %d", chunk, steps, (100+chunk-1)/chunk+19)
		}
	}
}

// Cases D01 and D03.
func TestOtherWeightsShareNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	run := func(seed uint64) (first, second answer, hashes []uint64, fingerprint string) {
		if err := os.WriteFile(path, gguftest.TinyModel(gguftest.Tiny{Seed: seed}), 0o600); err != nil {
			t.Fatal(err)
		}
		b := newDemo(t, Config{Model: path})
		defer b.Close()
		q := question{id: "q", tokens: prompt(1, 64), options: greedy(4)}
		for i := range q.tokens {
			q.tokens[i] %= gguftest.TinyTokens
		}
		p, err := b.Prepare(t.Context(), &wire.Request{Tokens: q.tokens})
		if err != nil {
			t.Fatal(err)
		}
		return b.ask(q), b.ask(q), p.BlockHashes, b.State().Model.Fingerprint
	}
	_, again, hashes, fingerprint := run(1)
	replaced, _, other, changed := run(2)
	if again.end.Usage.Cached != 48 {
		t.Errorf("the same model reused %d tokens; want 48", again.end.Usage.Cached)
	}
	if replaced.end.Usage.Cached != 0 || slices.Equal(hashes, other) || fingerprint == changed {
		t.Errorf("other weights under the same name: %d tokens reused, hashes %x and %x, fingerprints %s and %s",
			replaced.end.Usage.Cached, hashes, other, fingerprint, changed)
	}
}
