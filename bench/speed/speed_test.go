package speed

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 4}, 4}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.v); got != c.want {
			t.Errorf("of %v: %g, want %g", c.v, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	const head = `{"peer": "x", "load_s": 0.5}` + "\n"
	for name, c := range map[string]struct{ text, want string }{
		"noise":        {"[ INFO ] {}\n{broken\n\n" + head + `{"other": 1}`, ""},
		"no head":      {`{"prefill": 1, "tokens_per_s": 2}`, `no line has the key "peer"`},
		"no rate":      {head + `{"prefill": 512}`, "line 2: 512 tokens of prefill at 0 a second"},
		"no streams":   {head + `{"depth": 1, "tokens_per_s": 3}`, "line 2: 0 streams at depth 1"},
		"another kind": {head + `{"depth": "deep", "streams": 1}`, "line 2: json: "},
		"long line":    {head + strings.Repeat("x", lineBytesMax+1), "token too long"},
	} {
		r, err := Parse(strings.NewReader(c.text))
		if c.want == "" && (err != nil || r.Head.LoadS != 0.5) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"peer":"x"}` + "\n" + `{"prefill":1,"tokens_per_s":2}` + "\n" + `{"depth":1,"streams":1,"tokens_per_s":2,"all":[1]}` + "\n" + `{"machine":{"gops":{"a":1}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range r.Prefills {
			if !(p.TokensPerS > 0) {
				t.Errorf("prefill %+v", p)
			}
		}
		for _, d := range r.Decodes {
			if !(d.TokensPerS > 0) || d.Streams < 1 {
				t.Errorf("decode %+v", d)
			}
		}
	})
}

func TestBound(t *testing.T) {
	m := &Machine{ReadGBs: 10, CacheGBs: 100, GOPS: map[string]float64{"fma": 50}}
	for _, c := range []struct {
		w     work
		took  float64
		name  string
		share float64
	}{
		{work{bytes: 5e9, ops: 5e9, loop: "fma"}, 1, "memory", 0.5},
		{work{bytes: 5e9, ops: 50e9, loop: "fma"}, 2, "fma", 0.5},
		{work{bytes: 5e9, cached: true}, 0.1, "cache", 0.5},
		{work{bytes: 5e9, ops: 1, loop: "other"}, 1, "", 0},
	} {
		if name, share := m.bound(&c.w, c.took); name != c.name || share != c.share {
			t.Errorf("%+v in %g s: %g of %q, want %g of %q", c.w, c.took, share, name, c.share, c.name)
		}
	}
}

// Weights hold no number that could take time of its own.
func TestWeightsAreOrdinary(t *testing.T) {
	if len(Types) == 0 {
		t.Fatal("no types")
	}
	for _, typ := range Types {
		const n = 4 * 256
		x := make([]float32, n)
		kernels.Dequantize(x, typ, weights(typ, n))
		for i, v := range x {
			if size := math.Abs(float64(v)); !(size < 1e30) || size > 0 && size < 1e-35 {
				t.Fatalf("%v: number %d is %g", typ, i, v)
			}
		}
	}
}

func TestRoofIsSane(t *testing.T) {
	team := kernels.NewTeam(2)
	defer team.Close()
	m := NewRoof(team).Machine(2)
	for name, rate := range m.GOPS {
		if !(rate > 0.1 && rate < 1e6) {
			t.Errorf("%s: %g GOPS", name, rate)
		}
	}
	if m.Threads != 2 || !(m.ReadGBs > 0.01 && m.ReadGBs < 1e5) || !(m.CacheGBs > 0.01 && m.CacheGBs < 1e6) {
		t.Errorf("%+v", m)
	}
}

// tiny is a model that takes no time.
func tiny(t *testing.T) *gguf.File {
	f, err := gguf.Parse("tiny.gguf", gguftest.TinyModel(gguftest.Tiny{
		Layers: 2, Embed: 64, FF: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 300, Context: 128, Type: kernels.Q8_0,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func options(team *kernels.Team) *EngineOptions {
	return &EngineOptions{
		Model: "tiny.gguf", Prefill: 50, Depths: []int{33, 100}, Streams: []int{1, 2}, Runs: 2, Steps: 3, Chunk: 16, PageTokens: 16,
		Resident: func() int { return 0 }, Memory: func() int { return 0 }, Set: kernels.Best(), Team: team,
	}
}

func TestEngine(t *testing.T) {
	team := kernels.NewTeam(2)
	defer team.Close()
	b, err := Load(tiny(t), options(team))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var kinds []string
	if err := b.Run(func(line any) error {
		switch l := line.(type) {
		case *Prefill:
			kinds = append(kinds, fmt.Sprint("prefill ", l.Tokens, len(l.All)))
		case *Decode:
			kinds = append(kinds, fmt.Sprint("decode ", l.Depth, l.Streams, len(l.All)))
			if want := b.head.ReadBytes + l.Streams*b.config.KVReadBytes(b.o.KVType, l.Depth+1); l.StepBytes != want {
				t.Errorf("depth %d, %d streams read %d bytes, want %d", l.Depth, l.Streams, l.StepBytes, want)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := "[prefill 50 2 decode 33 1 2 decode 33 2 2 decode 100 1 2 decode 100 2 2]"
	if got := fmt.Sprint(kinds); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	stop := errors.New("full")
	if err := b.Run(func(any) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a line that cannot be written: %v", err)
	}
}

func TestLoadRefusesTooMuch(t *testing.T) {
	team := kernels.NewTeam(1)
	defer team.Close()
	deep, large := options(team), options(team)
	deep.Depths = []int{126}
	large.Memory = func() int { return 1000 }
	for want, o := range map[string]*EngineOptions{"129 tokens are asked for": deep, "ask for fewer streams or less depth": large} {
		if _, err := Load(tiny(t), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
