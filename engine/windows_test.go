package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// windowedModel is a paged model whose logits depend on what a token sees through windows as
// well, in pages of their own. A window that another has, or that was given back too early,
// changes them.
type windowedModel struct {
	*pagedModel
	windows cache.Windows
}

// seen is the first position that a token sees through a window.
func (m *windowedModel) seen(position int) int {
	if m.windows.Chunked {
		return position - position%m.windows.Tokens
	}
	return max(0, position-m.windows.Tokens+1)
}

func (m *windowedModel) Forward(chunks []model.Chunk) []float32 {
	m.pagedModel.Forward(chunks)
	for _, s := range chunks {
		for g, table := range s.Windows {
			for i, token := range s.Tokens {
				*m.cell(table, s.Start+i) = token + int32(g+1)<<16
			}
		}
	}
	m.logits = m.logits[:0]
	for _, s := range chunks {
		all := uint64(1)
		for i := range s.Start + len(s.Tokens) {
			all = all*31 + uint64(*m.cell(s.Pages, i))
			if i < s.Start+len(s.Tokens)-s.Logits {
				continue
			}
			h := all
			for _, table := range s.Windows {
				for j := m.seen(i); j <= i; j++ {
					h = (h ^ uint64(*m.cell(table, j)+1)) * 1099511628211
				}
			}
			m.fill(h)
		}
	}
	return m.logits
}

// TestInvarianceOfSchedulesWithWindows: with few pages, sequences are preempted, forked and
// paused, prompts go on where windows are, and no answer shows it.
func TestInvarianceOfSchedulesWithWindows(t *testing.T) {
	schedules := 25
	if testing.Short() || underRace {
		schedules = 5
	}
	for _, w := range []cache.Windows{{Tokens: 20, Pages: 2}, {Tokens: 32, Chunked: true, Pages: 1}} {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			invariance(t, labSetup{windows: w, cfg: Config{BatchTokensMax: 104}}, chaosQuestions(14, 25), schedules)
		})
	}
}

// TestLongContextsHoldFewWindows: a pool that is too small for all layers of a long sequence
// has room for it, and the room that is said is used to the last token.
func TestLongContextsHoldFewWindows(t *testing.T) {
	w := cache.Windows{Tokens: 33, Pages: 5, Step: 32}
	cfg := Config{BatchTokensMax: 32, ContextTokens: 2048}
	pages := w.PagesFor(1000, 16)
	b := newLab(t, labSetup{cfg: cfg, windows: w, pages: pages})
	if pages >= 6*1000/16/2 {
		t.Fatalf("%d pages are no test", pages)
	}
	long := question{id: "long", tokens: prompt(1, 900), options: greedy(101)}
	a := b.ask(long)
	mustEnd(t, long, a)
	if a.counts[0] != 101 {
		t.Errorf("%d tokens, want 101", a.counts[0])
	}
	again := b.ask(question{id: "again", tokens: long.tokens, options: greedy(1)})
	if got := again.end.Usage.Cached; got != 896 {
		t.Errorf("the same prompt finds %d tokens of 900, want 896", got)
	}
}

// sameBitsTogether asks in an engine whose layers share pages too, as they do where blocks
// are kept in files.
func sameBitsTogether(t *testing.T, cfg Config, qs []question) {
	t.Helper()
	_, apart := reference(t, labSetup{real: true, cfg: cfg}, qs)
	cfg.DiskCache, cfg.KVBytes = t.TempDir(), 0
	_, together := reference(t, labSetup{real: true, cfg: cfg}, qs)
	for key := range apart {
		if !slices.Equal(apart[key], together[key]) {
			t.Errorf("%s has other bits where layers with windows have pages of their own", key)
		}
	}
}

// TestInvarianceOfBitsWithWindows runs small real models with windows, in small pools; their
// bits are those that they have without pages apart.
func TestInvarianceOfBitsWithWindows(t *testing.T) {
	names, schedules := []string{"arch/gemma3", "arch/gpt-oss", "arch2/gemma4-e2b", "arch2/olmo3", "arch2/cohere2"}, 4
	if underRace {
		names, schedules = names[:2], 2
	}
	for _, name := range names {
		path := filepath.Join("..", "..", "shared", "conformance", name+".gguf")
		if _, err := os.Stat(path); err != nil {
			t.Skipf("reference data %s is not there", path)
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			f, err := open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			c, err := model.ReadConfig(f.File)
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Model: path, Threads: 2, ContextTokens: 256, BatchTokensMax: 104, SelfBenchmarkOff: true}
			if err := cfg.fill(); err != nil {
				t.Fatal(err)
			}
			paging, windows := cfg.Paging(&c, kernels.KVF16, cfg.ContextTokens, false)
			if windows.Pages == 0 {
				t.Fatal("no layers have windows")
			}
			cfg.KVBytes = int64(windows.PagesFor(112, 16)+6) * int64(paging.PageBytes)
			qs := chaosQuestions(8, 12)
			for i := range qs {
				for j := range qs[i].tokens {
					qs[i].tokens[j] %= 400
				}
			}
			sameBitsTogether(t, cfg, qs[:2])
			invariance(t, labSetup{real: true, cfg: cfg}, qs, schedules)
		})
	}
}

// heldShape is a published model as far as memory for 32,768 tokens goes.
type heldShape struct {
	name          string
	layers, every int // every so-manieth layer sees everything
	window        int
	heads, dim    int
	state         int // bytes of a state, which is kept whole
	recurrent     bool
}

var heldShapes = []heldShape{
	{name: "Gemma 3 4B", layers: 34, every: 6, window: 1024, heads: 4, dim: 256},
	{name: "Gemma 3 27B", layers: 62, every: 6, window: 1024, heads: 16, dim: 128},
	{name: "gpt-oss 20B", layers: 24, every: 2, window: 128, heads: 8, dim: 64},
	{name: "Qwen 3.5 4B", layers: 32, every: 4, recurrent: true, heads: 4, dim: 256, state: 24 * 4 * (32*128*128 + 3*8192)},
	{name: "Qwen 3 30B-A3B", layers: 48, every: 1, heads: 4, dim: 128},
}

func (s *heldShape) config() *model.Config {
	c := &model.Config{ContextTokens: 1 << 17}
	for i := range s.layers {
		l := model.Layer{KVHeads: s.heads, HeadDim: s.dim, KeysOf: i}
		if whole := (i+1)%s.every == 0; !whole && s.recurrent {
			l = model.Layer{Recurrent: true}
		} else if !whole {
			l.WindowTokens = s.window
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

// byFormula is what llama.cpp reserves for one sequence of that context, in f16: every cell
// of the context in layers that see everything, and in the others those of the window and of
// one step of 512 tokens, in multiples of 256.
func (s *heldShape) byFormula(tokens int) (bytes int) {
	for i := range s.config().Layers {
		cells := tokens
		if (i+1)%s.every != 0 {
			cells = 0
			if s.window > 0 {
				cells = min(tokens, (s.window+512+255)/256*256)
			}
		}
		bytes += cells * 2 * 2 * s.heads * s.dim
	}
	return bytes + s.state
}

// TestBytesHeldAt32k: a conversation of 32,768 tokens holds no more than llama.cpp reserves
// for it, and docs/models.md says how much.
func TestBytesHeldAt32k(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "models.md"))
	if err != nil {
		t.Fatal(err)
	}
	var cfg Config
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	const tokens = 1 << 15
	mib := func(n int) float64 { return float64(n) / (1 << 20) }
	for i := range heldShapes {
		s := &heldShapes[i]
		paging, windows := cfg.Paging(s.config(), kernels.KVF16, 1<<17, false)
		prefill := windows.PagesFor(tokens, 16)*paging.PageBytes + s.state
		windows.Step = 1
		held := windows.PagesFor(tokens, 16)*paging.PageBytes + s.state
		together, _ := (&Config{PageTokens: 16, DiskCache: "there"}).Paging(s.config(), kernels.KVF16, 1<<17, false)
		if theirs := s.byFormula(tokens); held > theirs {
			t.Errorf("%s: %.0f MiB are held, llama.cpp reserves %.0f", s.name, mib(held), mib(theirs))
		}
		row := fmt.Sprintf("| %s | %.0f | %.0f | %.0f | %.0f |\n", s.name, mib(held), mib(prefill), mib(s.byFormula(tokens)), mib(tokens/16*together.PageBytes+s.state))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/models.md lacks the row\n%s", row)
		}
	}
}
