package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/wire"
)

// TestMirrorOfTheEngineStartsAfresh: a reader that looks at the engine's states
// too late for some changes of its blocks is told so, and its set then promises
// no prompt more than the engine has. The control follows the same changes and
// ignores that it has missed some: it must promise too much.
func TestMirrorOfTheEngineStartsAfresh(t *testing.T) {
	for name, view := range map[string]func(*testing.T, *lab) wire.Engine{
		"in process":      func(_ *testing.T, b *lab) wire.Engine { return b.Engine },
		"behind a socket": func(t *testing.T, b *lab) wire.Engine { return connect(t, b.Engine) },
	} {
		t.Run(name, func(t *testing.T) {
			// A page holds one token, so that few prompts make many changes.
			b := newLab(t, labSetup{pages: 256, cfg: Config{PageTokens: 1}})
			seen := view(t, b)
			var reader hitmap.Reader
			var mirror, careless hitmap.Set
			follow := func() (missed bool) {
				t.Helper()
				state, want := seen.State(), b.State().Blocks.End()
				for limit := time.Now().Add(patience); state.Blocks.End() != want && time.Now().Before(limit); state = seen.State() {
					time.Sleep(time.Millisecond)
				}
				news := reader.Read(&state.Blocks)
				mirror.Follow(news)
				careless.Follow(hitmap.News{Changes: news.Changes})
				return news.Missed
			}
			const length = 200
			ask := func(seed uint64) {
				q := question{id: fmt.Sprint(seed), tokens: prompt(seed, length), options: greedy(1)}
				mustEnd(t, q, b.ask(q))
			}
			// held is how many leading tokens of a prompt the engine has; it
			// always computes the last one.
			held := func(seed uint64) (blocks []uint64, tokens int) {
				p, err := b.Prepare(t.Context(), &wire.Request{Tokens: prompt(seed, length)})
				if err != nil {
					t.Fatal(err)
				}
				return p.BlockHashes, p.CachedTokens
			}
			ask(0)
			first, tokens := held(0)
			if follow() || tokens != length-1 || mirror.Match(first) != length {
				t.Fatalf("the engine has %d tokens of the first prompt, the mirror %d", tokens, mirror.Match(first))
			}
			const prompts = 2 * hitmap.JournalMax / length
			for seed := range uint64(prompts) {
				ask(1 + seed)
			}
			if !follow() {
				t.Error("the reader is not told that it missed changes")
			}
			known := 0
			for seed := range uint64(prompts + 1) {
				blocks, tokens := held(seed)
				if match := mirror.Match(blocks); match > tokens+1 {
					t.Errorf("the mirror promises %d tokens of prompt %d, the engine has %d", match, seed, tokens)
				} else if match > 0 {
					known++
				}
			}
			if known == 0 {
				t.Error("the mirror knows no prompt any more")
			}
			if _, tokens := held(0); careless.Match(first) <= tokens+1 {
				t.Error("the control: a set that ignores what it missed is right nevertheless")
			}
			ask(0)
			if missed := follow(); missed || mirror.Match(first) != length {
				t.Errorf("the first prompt again: missed %v, %d tokens in the mirror", missed, mirror.Match(first))
			}
		})
	}
}
