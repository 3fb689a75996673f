package engine

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/kernels"
)

var someCost = cost.Cost{Base: 1e6, PrefillToken: 1e5, PrefillContext: 10, DecodeRow: 1e5, DecodeContext: 100}

func TestCostFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "cost.json")
	kept := costFile{Key: "key", Cost: someCost, ManyRows: "tiles"}
	if err := writeCost(path, kept); err != nil {
		t.Fatal(err)
	}
	if got, err := readCost(path, "key"); err != nil || got != kept {
		t.Errorf("read %+v, %v", got, err)
	}
	if _, err := readCost(path, "another"); err == nil || !strings.Contains(err.Error(), `"key"`) {
		t.Errorf("the cost of another key gave %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestCostFilesThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"empty":        "",
		"text":         "hello",
		"half":         `{"key":"key","cost":{"Base":1`,
		"nothing":      `{"key":"key","cost":{}}`,
		"negative":     `{"key":"key","cost":{"Base":1,"DecodeRow":-1}}`,
		"too large":    `{"key":"key","cost":{"Base":1e999}}`,
		"another kind": `{"key":"key","cost":{"Base":1},"version":7}`,
		"and more":     `{"key":"key","cost":{"Base":1}} {}`,
		"endless":      `{"key":"key","cost":{"Base":1}` + strings.Repeat(" ", costFileBytesMax) + `}`,
	} {
		path := filepath.Join(t.TempDir(), "cost.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := readCost(path, "key"); err == nil {
			t.Errorf("%s: taken as %+v", name, c)
		}
	}
}

// twoWays is a set with two ways to multiply many rows, and its alternative.
func twoWays() (tiles, vectors *kernels.Set) {
	tiles, vectors = &kernels.Set{Name: "two", ManyRows: "tiles"}, &kernels.Set{Name: "two", ManyRows: "vectors"}
	tiles.Alternative, vectors.Alternative = vectors, tiles
	return tiles, vectors
}

func TestManyRowsAsRemembered(t *testing.T) {
	tiles, vectors := twoWays()
	one := &kernels.Set{Name: "one"}
	for _, c := range []struct {
		set        *kernels.Set
		remembered string
		found      *kernels.Set // nil: nothing may be measured
		want       *kernels.Set
	}{
		{tiles, "tiles", nil, tiles}, {tiles, "vectors", nil, vectors}, {vectors, "tiles", nil, tiles},
		{tiles, "", vectors, vectors}, {tiles, "", tiles, tiles}, {tiles, "another way", vectors, vectors},
		{one, "", nil, one}, {one, "tiles", nil, one},
	} {
		got := rememberedSet(c.set, c.remembered, func() *kernels.Set {
			if c.found == nil {
				t.Errorf("%s %q: measured", c.set.Name, c.remembered)
				return c.set
			}
			return c.found
		})
		if got != c.want {
			t.Errorf("%s %s, remembered %q: got %s", c.set.Name, c.set.ManyRows, c.remembered, got.ManyRows)
		}
	}
}

// TestManyRowsAreKept: the choice goes to the file with the cost, the next start takes it from
// there, and another key does not.
func TestManyRowsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.json")
	begin := func(key string, measure bool) *loaded {
		p := &loaded{}
		p.set, _ = twoWays()
		p.keeper.open(path, key, slog.New(slog.DiscardHandler))
		p.chooseManyRows(kernels.Q4_0, measure)
		return p
	}
	first := begin("key", false)
	if first.set.ManyRows != "vectors" {
		t.Errorf("with nothing measured many rows are multiplied by %s", first.set.ManyRows)
	}
	first.keeper.keep(someCost)
	if next := begin("key", true); next.set.ManyRows != "vectors" || next.keeper.kept.Cost != someCost {
		t.Errorf("the next start has %s, %+v", next.set.ManyRows, next.keeper.kept)
	}
	// A set that rounds nothing is not timed: it stays as it is, the tiles.
	if other := begin("another machine", true); other.set.ManyRows != "tiles" || other.keeper.kept != (costFile{}) {
		t.Errorf("another machine has %s, %+v", other.set.ManyRows, other.keeper.kept)
	}
	a, b := costKey("digest", "avx512amx", &Config{Threads: 2}), costKey("digest", "avx512bf16", &Config{Threads: 2})
	if a == b || !strings.Contains(a, processor()) {
		t.Errorf("keys %q and %q", a, b)
	}
}

// TestWarningOfPlainGo: the start warns where a set has no product of the model's weights.
func TestWarningOfPlainGo(t *testing.T) {
	for _, set := range kernels.Sets() {
		var text strings.Builder
		cfg := Config{Kernels: set.Name, CostFile: costFileNone, SelfBenchmarkOff: true, Log: slog.New(slog.NewTextHandler(&text, nil))}
		if err := cfg.fill(); err != nil {
			t.Fatal(err)
		}
		p, err := load(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
		want := set.Name == "avx2" || set.Name == "avx512" // the demo model is quantised
		if warned := strings.Contains(text.String(), "in plain Go"); warned != want {
			t.Errorf("%s: warned %v:\n%s", set.Name, warned, text.String())
		}
	}
}

func FuzzParseCost(f *testing.F) {
	f.Add([]byte(`{"key":"key","cost":{"Base":1,"PrefillToken":2.5}}`))
	f.Add([]byte(`{"key":"key","cost":{"Base":-0,"DecodeRow":1e308}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parseCost(text, "key")
		if err != nil {
			return
		}
		c := file.Cost
		var fit cost.Fit
		fit.Restore(c)
		fit.Observe(cost.Load{DecodeRows: 1}, time.Millisecond)
		if !c.Valid() || !c.Known() || !fit.Cost().Valid() {
			t.Fatalf("%q gave %+v and then %+v", text, c, *fit.Cost())
		}
	})
}

func TestSelfBenchmarkLeavesNoTrace(t *testing.T) {
	cold := newDemo(t, Config{})
	q := question{id: "q", tokens: prompt(1, 70), options: greedy(16)}
	want := cold.ask(q)

	e, err := New(Config{CostFile: costFileNone, SelfBenchmarkLimit: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.State()
	if !s.Cost.Known() || !s.Cost.Valid() || s.Cost.PrefillToken == 0 || s.RatioMedian != 1 {
		t.Errorf("after the benchmark the cost is %+v, the ratio %v", s.Cost, s.RatioMedian)
	}
	if s.Step != 0 || s.StepDuration != 0 || s.PrefillTokens != 0 || s.DecodeTokens != 0 || s.Blocks.End() != 0 || s.PagesFree != s.PagesTotal {
		t.Errorf("the benchmark shows in the state: %+v", *s)
	}
	b := &lab{Engine: e, t: t}
	got := b.ask(q)
	mustEnd(t, q, got)
	if got.texts[0] != want.texts[0] || got.end.Usage != want.end.Usage {
		t.Errorf("after the benchmark the answer is %q; want %q", got.texts[0], want.texts[0])
	}
}

func TestSelfBenchmarkFitsSmallEngines(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one page":   {KVBytes: 32768},
		"one token":  {BatchTokensMax: 1},
		"short":      {ContextTokens: 8},
		"small page": {PageTokens: 1, KVBytes: 2048 * 40},
		"no time":    {SelfBenchmarkLimit: time.Millisecond},
	} {
		if err := cfg.fill(); err != nil {
			t.Fatal(err)
		}
		p, err := load(&cfg)
		if err != nil {
			t.Fatal(name, err)
		}
		p.selfBenchmark(&cfg) // must not panic on pages, tokens or positions
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCostIsKeptForTheNextStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.json")
	begin := func() cost.Cost {
		e, err := New(Config{CostFile: path, SelfBenchmarkLimit: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		first := e.State().Cost
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		return first
	}
	measured, again := begin(), begin()
	if slices.ContainsFunc([]cost.Cost{measured, again}, func(c cost.Cost) bool { return !c.Known() }) {
		t.Fatalf("measured %+v, then %+v", measured, again)
	}
	near := func(a, b float64) bool { return a-b < 1e-6*b+1e-9 && b-a < 1e-6*a+1e-9 }
	if !near(measured.Base, again.Base) || !near(measured.PrefillToken, again.PrefillToken) || !near(measured.DecodeRow, again.DecodeRow) {
		t.Errorf("measured %+v, and the next start had %+v", measured, again)
	}
}

func TestCostThatCannotBeKeptIsANote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{CostFile: filepath.Join(file, "below"), SelfBenchmarkOff: true})
	if err != nil {
		t.Fatal(err)
	}
	if e.State().Cost.Known() {
		t.Error("a cost is known without a benchmark")
	}
	b := &lab{Engine: e, t: t}
	if a := b.ask(question{id: "q", tokens: prompt(1, 5), options: greedy(3)}); a.end.Err != nil {
		t.Error(a.end.Err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
