package kernels

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func names(sets []*Set) []string {
	var all []string
	for _, s := range sets {
		all = append(all, s.Name)
	}
	return all
}

// TestExpectedSets asks the operating system, not package cpu, what the processor has.
func TestExpectedSets(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if runtime.GOARCH != "amd64" || err != nil || purego {
		t.Skipf("nothing to compare with: %s, purego %v, %v", runtime.GOARCH, purego, err)
	}
	_, line, _ := strings.Cut(string(info), "\nflags")
	line, _, _ = strings.Cut(line, "\n")
	flags := strings.Fields(line)
	has := func(want ...string) bool {
		return !slices.ContainsFunc(want, func(f string) bool { return !slices.Contains(flags, f) })
	}
	want := []string{"ref"}
	if has("avx2", "fma", "f16c") {
		want = slices.Insert(want, 0, "avx2int8", "avx2")
		if has("avx512f", "avx512dq", "bmi2") {
			want = slices.Insert(want, 1, "avx512")
			if has("avx512bw", "avx512vl", "avx512_vnni") {
				want = slices.Insert(want, 0, "avx512vnni")
				if has("avx512_bf16") {
					want = slices.Insert(want, 0, "avx512bf16")
					if has("amx_tile", "amx_int8") { // Linux has the flags only where it gives tiles
						want = slices.Insert(want, 0, "avx512amx")
					}
				}
			}
		}
	}
	t.Setenv(DisableEnv, "")
	if got := names(Sets()); !slices.Equal(got, want) {
		t.Errorf("sets %v, want %v for flags %v", got, want, flags)
	}
	if got := Best().Name; got != want[0] {
		t.Errorf("best is %s, want %s", got, want[0])
	}
}

func TestSetsCanBeDisabled(t *testing.T) {
	t.Setenv(DisableEnv, strings.Join(names(vectorSets()), ", "))
	if got := names(Sets()); !slices.Equal(got, []string{"ref"}) {
		t.Errorf("all switched off: %v", got)
	}
	if _, err := Lookup("avx2"); err == nil || !strings.Contains(err.Error(), "available: ref") {
		t.Errorf("lookup of a disabled set: %v", err)
	}
	t.Setenv(DisableEnv, "ref")
	if s, err := Lookup("ref"); err != nil || s.Name != "ref" {
		t.Errorf("ref can be switched off: %v", err)
	}
}

// TestTypesWithoutAProduct: where a set has no product of a type, it gives ref's bits for any
// rows. Every set that may be the best one has all products, except ref.
func TestTypesWithoutAProduct(t *testing.T) {
	for i, set := range Sets() {
		for typ := range typeTable {
			switch quantised := typ.BlockLen() > 1; {
			case set == refSet:
				if set.InAssembly(typ) {
					t.Errorf("ref has assembly for %v", typ)
				}
				continue
			case set.InAssembly(typ), typ.Coded(): // package kerneltest compares these with ref
				continue
			case i == 0 || !quantised || set.Round != nil:
				t.Errorf("%s has no product of %v", set.Name, typ)
			}
			const rows, n = 37, 3
			p := newTrial(typ, rows, 512, n)
			if got, want := p.run(set), p.run(refSet); !slices.Equal(got, want) {
				t.Errorf("%s %v: not ref's bits", set.Name, typ)
			}
			m, got := set.Pack(typ, rows, 512, p.raw), make([]float32, n*rows)
			set.MatMul(got, rows, m, set.Input(p.x), n, 0, RowTile)
			set.MatMul(got, rows, m, set.Input(p.x), n, RowTile, rows)
			if !slices.Equal(got, p.run(refSet)) {
				t.Errorf("%s %v: other bits in two calls", set.Name, typ)
			}
		}
	}
}

func TestWrongShapesPanic(t *testing.T) {
	m := func(s *Set) *Matrix { return s.Pack(F32, 32, 8, make([]byte, 32*8*4)) }
	x, dst := make([]float32, 64), make([]float32, 64)
	in := Input{Numbers: x}
	layout := KVLayout{PageTokens: 4, KVHeads: 1, HeadDim: 8}
	pool := make([]byte, layout.PoolBytes(2))
	place := func(page, slot, numbers int) func(*Set) {
		return func(s *Set) { s.Place(&layout, pool, pool, page, slot, x[:numbers], x[:8]) }
	}
	rounding := func(dst []Block, x []float32) func(*Set) {
		return func(s *Set) { s.Round(dst, x) }
	}
	attention := func(change func(a *Attention)) func(*Set) {
		return func(s *Set) {
			a := &Attention{Out: dst[:8], Q: x[:8], K: pool, V: pool, Pages: []int32{0, 1}, KVLayout: layout, Group: 1, Queries: 1, To: 8, Scale: 1, Scores: make([]float32, AttentionScratch(1, 8, 8))}
			change(a)
			s.Attend(a)
		}
	}
	attention(func(*Attention) {})(Best()) // the unchanged one is right
	for name, call := range map[string]func(s *Set){
		"Pack: short":                 func(s *Set) { s.Pack(F32, 2, 2, make([]byte, 15)) },
		"Pack: part of a block":       func(s *Set) { s.Pack(Q8_0, 1, 16, make([]byte, 17)) },
		"Pack: unknown type":          func(s *Set) { s.Pack(40, 1, 256, make([]byte, 66)) },
		"MatMul: start inside a tile": func(s *Set) { s.MatMul(dst, 32, m(s), in, 1, 8, 32) },
		"MatMul: end inside a tile":   func(s *Set) { s.MatMul(dst, 32, m(s), in, 1, 0, 24) },
		"MatMul: past the rows":       func(s *Set) { s.MatMul(dst, 48, m(s), in, 1, 0, 48) },
		"MatMul: x too short":         func(s *Set) { s.MatMul(dst, 32, m(s), Input{Numbers: x[:15]}, 2, 0, 32) },
		"MatMul: dst too short":       func(s *Set) { s.MatMul(dst[:63], 32, m(s), in, 2, 0, 32) },
		"MatMul: stride below rows":   func(s *Set) { s.MatMul(dst, 31, m(s), in, 2, 0, 32) },
		"MatMul: too few blocks":      func(s *Set) { s.MatMul(dst, 32, s.Pack(Q8_0, 32, 32, make([]byte, 32*34)), Input{}, 1, 0, 32) },
		"Round: part of a block":      rounding(make([]Block, 1), x[:31]),
		"Round: blocks too few":       rounding(make([]Block, 1), x),
		"RMSNorm: weight too short":   func(s *Set) { s.RMSNorm(dst, x, x[:63], 1) },
		"Rotate: part of a head":      func(s *Set) { s.Rotate(x[:63], dst[:8], 8, true) },
		"Rotate: part of a pair":      func(s *Set) { s.Rotate(x, dst[:7], 8, false) },
		"Rotate: head too short":      func(s *Set) { s.Rotate(x, dst[:10], 8, false) },
		"Rotate: heads of nothing":    func(s *Set) { s.Rotate(nil, nil, 0, false) },
		"SiLUMul: dst too short":      func(s *Set) { s.SiLUMul(dst[:63], x, x) },
		"GELUMul: up too short":       func(s *Set) { s.GELUMul(dst, x, x[:63]) },
		"ClampedSiLUMul: dst short":   func(s *Set) { s.ClampedSiLUMul(dst[:63], x, x, 7) },
		"Attend: sinks too few":       attention(func(a *Attention) { a.Sinks = []float32{} }),
		"Add: x too short":            func(s *Set) { s.Add(dst, x[:63]) },
		"Peaks: too few":              func(s *Set) { s.Peaks(dst[:1], make([]float32, PeakLen+1)) },
		"Merge: a cut partial result": func(s *Set) { attention(func(a *Attention) { s.Merge(a, dst[:PartialLen(1, 8)+1]) })(Best()) },
		"Merge: no partial results":   func(s *Set) { attention(func(a *Attention) { s.Merge(a, nil) })(Best()) },
		"Attend: partial too short":   attention(func(a *Attention) { a.Partial = dst[:PartialLen(1, 8)-1] }),
		"Attend: piece outside":       attention(func(a *Attention) { a.Partial, a.Piece = dst[:PartialLen(1, 8)], 1 }),
		"Softmax: empty":              func(s *Set) { s.Softmax(nil) },
		"Attend: no positions":        attention(func(a *Attention) { a.To = 0 }),
		"Attend: out too short":       attention(func(a *Attention) { a.Out = a.Out[:7] }),
		"Attend: scores too short":    attention(func(a *Attention) { a.Scores = a.Scores[:7] }),
		"Attend: no queries":          attention(func(a *Attention) { a.Queries = 0 }),
		"Attend: queries overlap":     attention(func(a *Attention) { a.Queries, a.To, a.Q, a.Out, a.Stride = 2, 7, x, dst, 7 }),
		"Attend: last query's page":   attention(func(a *Attention) { a.Queries, a.Q, a.Out, a.Stride = 2, x, dst, 8 }),
		"Attend: pages too few":       attention(func(a *Attention) { a.Pages = a.Pages[:1] }),
		"Attend: page outside":        attention(func(a *Attention) { a.Pages = []int32{0, 2} }),
		"Attend: page below":          attention(func(a *Attention) { a.Pages = []int32{0, -1} }),
		"Attend: head outside":        attention(func(a *Attention) { a.KVHead = 1 }),
		"Attend: pool too short":      attention(func(a *Attention) { a.V = a.V[1:] }),
		"Attend: a GPU's type":        attention(func(a *Attention) { a.KVType = KVBF16 }),
		"Attend: unknown type":        attention(func(a *Attention) { a.KVType = 5 }),
		"Place: slot outside":         place(0, 4, 8),
		"Place: page outside":         place(3, 0, 8),
		"Place: page below":           place(-1, 0, 8),
		"Place: key too short":        place(0, 0, 7),
		"Dequantize: src too short":   func(*Set) { Dequantize(dst, Q8_0, make([]byte, 67)) },
		"Dequantize: part of a block": func(*Set) { Dequantize(dst[:33], Q8_0, make([]byte, 100)) },
	} {
		op, what, _ := strings.Cut(name, ":")
		for _, s := range Sets() {
			if op == "Round" && s.Round == nil || op == "Merge" && s.Merge == nil || what == " a GPU's type" && s.Name == "ref" { // which GPUs are compared with
				continue
			}
			got, _ := panicOf(func() { call(s) }).(string)
			if !strings.HasPrefix(got, "kernels: "+op+": ") {
				t.Errorf("%s on %s: panic %q", name, s.Name, got)
			}
		}
	}
}
