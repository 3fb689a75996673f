package engine

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

func TestPrepareRefuses(t *testing.T) {
	b := newDemo(t, Config{KVBytes: 32768 * 8}) // room for 128 tokens
	text, empty := "Hello", ""
	for name, c := range map[string]struct {
		r     wire.Request
		kind  wire.Kind
		param string
		words string
	}{
		"no source":         {wire.Request{}, wire.Invalid, "prompt", "exactly one"},
		"two sources":       {wire.Request{Text: &text, Tokens: []int32{3}}, wire.Invalid, "prompt", "exactly one"},
		"empty text":        {wire.Request{Text: &empty}, wire.Invalid, "prompt", "no tokens"},
		"no tokens":         {wire.Request{Tokens: []int32{}}, wire.Invalid, "prompt", "no tokens"},
		"negative token":    {wire.Request{Tokens: []int32{4, -1}}, wire.Invalid, "prompt", "position 1"},
		"unknown token":     {wire.Request{Tokens: []int32{2048}}, wire.Invalid, "prompt", "0 to 1900"},
		"too long to fit":   {wire.Request{Tokens: prompt(1, 130)}, wire.TooLarge, "prompt", "never fit"},
		"messages no array": {wire.Request{Messages: json.RawMessage(`5`)}, wire.Invalid, "messages", "array"},
		"reserved option":   {wire.Request{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`), TemplateOptions: json.RawMessage(`{"messages":1}`)}, wire.Invalid, "chat_template_kwargs", "cannot be set"},
		"options no object": {wire.Request{Messages: json.RawMessage(`[{"role":"user","content":"x"}]`), TemplateOptions: json.RawMessage(`5`)}, wire.Invalid, "chat_template_kwargs", "must be an object"},
		"no messages":       {wire.Request{Messages: json.RawMessage(`[]`)}, wire.Invalid, "messages", "at least one"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Prepare(t.Context(), &c.r)
			e := wire.AsError(err)
			if err == nil || e.Kind != c.kind || e.Param != c.param || !strings.Contains(e.Message, c.words) {
				t.Errorf("got %v (param %q); want %v, param %q, words %q", err, e.Param, c.kind, c.param, c.words)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Prepare(gone, &wire.Request{Text: &text})
	if e := wire.AsError(err); err == nil || e.Kind != wire.Canceled {
		t.Errorf("an abandoned request gave %v", err)
	}
}

func TestPoolBoundsTheRoom(t *testing.T) {
	b := newDemo(t, Config{KVBytes: 32768 * 8})
	p, err := b.Prepare(t.Context(), &wire.Request{Tokens: prompt(1, 100)})
	if err != nil || p.Room != 29 {
		t.Fatalf("%+v, %v; want room for the 28 that fit and one", p, err)
	}
	q := question{id: "q", tokens: prompt(1, 100), options: greedy(0)}
	a := b.ask(q)
	mustEnd(t, q, a)
	if a.counts[0] != 29 || a.finishes[0] != wire.FinishLength { // the last token needs no room
		t.Errorf("%d tokens, finish %v; want 29", a.counts[0], a.finishes[0])
	}
}

func TestGenerateTrustsNoPeer(t *testing.T) {
	b := newDemo(t, Config{})
	some := &wire.Prompt{Tokens: prompt(1, 3)}
	for name, c := range map[string]struct {
		g     wire.Generation
		param string
		words string
	}{
		"no prompt":       {wire.Generation{Options: greedy(1)}, "prompt", "no prompt"},
		"unknown token":   {wire.Generation{Options: greedy(1), Prompt: &wire.Prompt{Tokens: []int32{1 << 20}}}, "prompt", "vocabulary"},
		"no room":         {wire.Generation{Options: greedy(2), Prompt: &wire.Prompt{Tokens: prompt(1, 2047), Room: 2}}, "max_tokens", "room for 1"},
		"n of 0":          {wire.Generation{Prompt: some}, "n", "1 to 16"},
		"n of 17":         {wire.Generation{Prompt: some, Options: wire.Options{N: 17}}, "n", "1 to 16"},
		"NaN temperature": {wire.Generation{Prompt: some, Options: wire.Options{N: 1, Temperature: float32(math.NaN())}}, "temperature", "number"},
	} {
		t.Run(name, func(t *testing.T) {
			c.g.Notify = make(chan struct{}, 1)
			events := b.Generate(&c.g).Take(nil)
			if len(events) != 1 || events[0].End == nil {
				t.Fatalf("events %+v; want one end", events)
			}
			if e := events[0].End.Err; e.Kind != wire.Invalid || e.Param != c.param || !strings.Contains(e.Message, c.words) {
				t.Errorf("got %v (param %q); want param %q, words %q", e, e.Param, c.param, c.words)
			}
		})
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) { // G07: no engine before its model can answer
	text := filepath.Join(t.TempDir(), "text.gguf")
	if err := os.WriteFile(text, []byte("this is no model, whatever its name says"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg   Config
		words []string
	}{
		"missing file":      {Config{Model: "/nowhere/model.gguf"}, []string{"/nowhere/model.gguf"}},
		"no model":          {Config{Model: text}, []string{text}},
		"unknown kernels":   {Config{Kernels: "abacus"}, []string{"abacus", "ref"}},
		"context too long":  {Config{ContextTokens: 5000}, []string{"engine.context_tokens is 5000", "2048"}},
		"too little memory": {Config{KVBytes: 100}, []string{"kv_bytes", "32768"}},
		"negative threads":  {Config{Threads: -1}, []string{"engine.threads: -1 must not be negative"}},
		"huge pages":        {Config{PageTokens: 1000}, []string{"page_tokens", "256"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := New(c.cfg)
			if err == nil {
				t.Fatalf("it started; closing gave %v", e.Close())
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error lacks %q: %v", w, err)
				}
			}
		})
	}
}

func TestModelIsDescribed(t *testing.T) {
	b := newDemo(t, Config{})
	m := b.State().Model
	if m.ID != "forebay-demo" || m.Architecture != "llama" || m.Quantisation != "Q8_0" || m.ContextTokens != 2048 || m.VocabTokens != 1901 ||
		m.PageTokens != 16 || m.PageBytes != 32768 || !m.Chat || m.ChatError != "" || m.Digest == "" || m.Fingerprint == "" || m.Parameters < 3e6 {
		t.Errorf("the model is described as %+v", m)
	}
	other := newDemo(t, Config{Kernels: "ref"}).State().Model
	if same := other.Fingerprint == m.Fingerprint; same != (m.Kernels == "ref") {
		t.Errorf("fingerprints equal: %v, kernels %s and ref", same, m.Kernels)
	}
}

func TestQuantizeMakesAnotherModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, gguftest.TinyModel(gguftest.Tiny{LogitScale: 4}), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := newDemo(t, Config{Model: path}).State().Model
	b := newDemo(t, Config{Model: path, Quantize: "q8_0"})
	m := b.State().Model
	if whole.Quantisation != "F32" || m.Quantisation != "Q8_0" || m.Fingerprint == whole.Fingerprint || m.Digest == whole.Digest || m.WeightBytes >= whole.WeightBytes/2 {
		t.Errorf("quantised: %+v\nwhole: %+v", m, whole)
	}
	q := question{id: "q", tokens: []int32{100, 101, 102}, options: greedy(8)}
	mustEnd(t, q, b.ask(q))
	if id := m.ID; id != "m" {
		t.Errorf("its name is %q", id)
	}
}

// A tokenizer may have tokens of images, for which a model that reads text has
// no rows.
func TestTokensWithoutRowsAreRefused(t *testing.T) {
	path := filepath.Join("..", "..", "shared", "conformance", "safetensors", "gemma3")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: the conformance model is missing: %s", path)
	}
	b := newDemo(t, Config{Model: path})
	m := b.State().Model
	if m.VocabTokens != 500 || b.loaded.tokenizer.Size() <= 500 || m.ID != "gemma3" {
		t.Fatalf("%d tokens of %d, called %s", m.VocabTokens, b.loaded.tokenizer.Size(), m.ID)
	}
	_, err := b.Prepare(t.Context(), &wire.Request{Tokens: []int32{1, 500}})
	if e := wire.AsError(err); err == nil || e.Kind != wire.Invalid || e.Param != "prompt" || !strings.Contains(e.Message, "tokens are 0 to 499") {
		t.Errorf("got %v", err)
	}
	if a := b.complete("Hello", greedy(4)); a.end.Err != nil {
		t.Errorf("the answer ends with %v", a.end.Err)
	}
}

func TestSlowTemplateNamesItsBudget(t *testing.T) {
	const slow = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
	b := newLab(t, labSetup{template: slow, cfg: Config{PromptRenderBudget: 1}})
	_, err := b.Prepare(t.Context(), &wire.Request{Messages: json.RawMessage(`[{"role":"user","content":"Hi"}]`)})
	if e := wire.AsError(err); err == nil || e.Kind != wire.Invalid || !strings.Contains(e.Message, "within 1ns") || !strings.Contains(e.Message, "engine.prompt_render_budget") {
		t.Errorf("got %v", err)
	}
}

func TestTemplatesThatRefuseOrLack(t *testing.T) {
	for name, c := range map[string]struct{ template, words string }{
		"raises":     {"{{ raise_exception('roles must alternate, please') }}", "roles must alternate, please"},
		"missing":    {"", "no chat template"},
		"broken":     {"{% if %}", "cannot chat"},
		"fails late": {"{{ messages.nothing.more }}", "template"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, labSetup{template: c.template})
			_, err := b.Prepare(t.Context(), &wire.Request{Messages: json.RawMessage(`[{"role":"user","content":"Hi"}]`)})
			e := wire.AsError(err)
			if err == nil || e.Kind != wire.Invalid || e.Param != "messages" || !strings.Contains(e.Message, c.words) {
				t.Errorf("got %v (param %q); want %q", err, e.Param, c.words)
			}
		})
	}
}

// A chat's turns share their beginnings; what is reused gives the same ids.
func TestLaterTurnsHaveTheIDsOfTheirOwn(t *testing.T) {
	b := newDemo(t, Config{PromptRenderBudget: patience})
	var messages []map[string]string
	for turn := range 12 {
		for _, role := range []string{"user", "assistant"} {
			messages = append(messages, map[string]string{"role": role, "content": strings.Repeat("é <|im_end|> 12 ", turn) + role})
		}
		if turn == 7 {
			messages[3]["content"] = "edited"
		}
		text, _ := json.Marshal(messages)
		r := &wire.Request{Messages: text}
		warm, err := b.Prepare(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if warm.Render <= 0 || warm.Tokenize <= 0 {
			t.Errorf("rendered in %v, tokenized in %v", warm.Render, warm.Tokenize)
		}
		cold := tokenizer.NewCache(b.loaded.tokenizer, 0)
		kept := b.loaded.tokens
		b.loaded.tokens = cold
		want, err := b.Prepare(t.Context(), r)
		if b.loaded.tokens = kept; err != nil || !slices.Equal(warm.Tokens, want.Tokens) {
			t.Fatalf("turn %d: %v; the ids differ from those of the text alone", turn, err)
		}
	}
}

// countdown is a context that ends after a number of calls of Err.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// An encoder that is not stopped looks at its context once or not at all.
func TestTokenizingStopsWhenTheRequestIsGone(t *testing.T) {
	b := newLab(t, labSetup{cfg: Config{ContextTokens: 1 << 24}})
	text := strings.Repeat("a word and another ", 1<<16)
	for _, looks := range []int64{1, 3, 20} {
		ctx := &countdown{Context: t.Context()}
		ctx.left.Store(looks)
		_, err := b.Prepare(ctx, &wire.Request{Text: &text})
		if e := wire.AsError(err); err == nil || e.Kind != wire.Canceled {
			t.Errorf("after %d looks: %v", looks, err)
		}
	}
}

func TestConfigIsValidatedWithoutAModel(t *testing.T) {
	for words, c := range map[string]Config{
		"engine.threads: -1 must not be negative":                      {Threads: -1},
		"engine.page_tokens: 257 is out of range; allowed is 1 to 256": {PageTokens: 257},
		"engine.sequences_max: -5 must not be negative":                {SequencesMax: -5},
		"engine.kv_bytes: -1 must not be negative":                     {KVBytes: -1},
		"engine.step_budget: -1ns must not be negative":                {StepBudget: -1},
		"engine.prompt_render_budget: -1s must not be negative":        {PromptRenderBudget: -time.Second},
		`engine.quantize: "q3_k" is not one of q8_0, q4_0, q4_k, q6_k`: {Quantize: "q3_k"},
		"engine.tokens_cache_bytes: 1 is out of range":                 {TokensCacheBytes: 1},
	} {
		if err := c.fill(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v; want %q", err, words)
		}
	}
	var c Config
	if err := c.fill(); err != nil || c.Threads < 1 {
		t.Errorf("the defaults are refused: %v, %d threads", err, c.Threads)
	}
}

func TestPagesStayWithinThePool(t *testing.T) {
	c := Config{PageTokens: 16, KVBytes: 1 << 62}
	pages, err := c.pageCount(128, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cache.New(cache.Config{Pages: pages + 1, PageTokens: 1}); err == nil || pages < 1<<22 {
		t.Errorf("%d pages of room for any memory; the pool takes more", pages)
	}
}

// TestKVTypeSizesPagesAndNamesBits: a narrower type makes smaller pages, and more of
// them in the same memory; the fingerprint, which promises equal bits, is another.
func TestKVTypeSizesPagesAndNamesBits(t *testing.T) {
	seen := map[string]string{}
	for _, want := range []struct {
		kv          string
		page, pages int
	}{{"f32", 65536, 64}, {"f16", 32768, 128}, {"int8", 17408, 240}} { // 4 layers, 2 KV heads of 64, 16 tokens
		s := newDemo(t, Config{KVType: want.kv, KVBytes: 4 << 20}).State()
		m := &s.Model
		if m.PageBytes != want.page || s.PagesTotal != want.pages {
			t.Errorf("%s: %d pages of %d bytes, want %d of %d", want.kv, s.PagesTotal, m.PageBytes, want.pages, want.page)
		}
		if other := seen[m.Fingerprint]; other != "" {
			t.Errorf("%s has the fingerprint of %s", want.kv, other)
		}
		seen[m.Fingerprint] = want.kv
	}
	for _, kv := range []string{"bf16", "fp8"} {
		if _, err := New(Config{KVType: kv, Device: DeviceConfig{Kind: cpuDevice}}); err == nil || !strings.Contains(err.Error(), "engine.kv_type is "+kv+", which is kept on a GPU alone, and the device is cpu") {
			t.Errorf("%s on the CPU: %v", kv, err)
		}
	}
}
