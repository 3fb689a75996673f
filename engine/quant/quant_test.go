package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64()) / 20
	}
	return x
}

// loss is the root mean square error of x stored as t, against that of x.
func loss(t kernels.Type, x []float32, raw []byte) float64 {
	got := make([]float32, len(x))
	kernels.Dequantize(got, t, raw)
	var wrong, size float64
	for i := range x {
		wrong += float64(got[i]-x[i]) * float64(got[i]-x[i])
		size += float64(x[i]) * float64(x[i])
	}
	return math.Sqrt(wrong / size)
}

// TestLossIsThatOfGoodQuantisers: on normally distributed numbers. A control that
// takes each block's range for its scale must lose more.
func TestLossIsThatOfGoodQuantisers(t *testing.T) {
	x := normal(rand.New(rand.NewPCG(1, 1)), 256*400)
	for typ, most := range map[kernels.Type]float64{kernels.Q8_0: 0.0054, kernels.Q4_0: 0.0815, kernels.Q4_K: 0.0715, kernels.Q6_K: 0.0175} {
		got := loss(typ, x, Encode(nil, typ, x))
		t.Logf("%v: %.5f", typ, got)
		if got > most {
			t.Errorf("%v loses %.5f, allowed are %.5f", typ, got, most)
		}
	}
	if naive := loss(kernels.Q4_0, x, gguftest.Encode(kernels.Q4_0, x)); naive < 0.09 {
		t.Errorf("the control loses %.5f: the limits tell nothing apart", naive)
	}
}

// TestLineIsBelowZero: Q4_K has no minimum over 0, so numbers that lie above fit through 0.
func TestLineIsBelowZero(t *testing.T) {
	for want, points := range map[[2]float64][2][]float64{ // {slope, offset} of numbers and what they stand for
		{2, -1}:        {{0, 1, 2, 3}, {-1, 1, 3, 5}},
		{31.0 / 14, 0}: {{0, 1, 2, 3}, {1, 2, 4, 7}},
		{0, -2}:        {{5, 5}, {-2, -2}},
		{0.4, 0}:       {{5, 5}, {2, 2}},
	} {
		var sx, sq, sxq, sqq float64
		for i, q := range points[0] {
			x := points[1][i]
			sx, sq, sxq, sqq = sx+x, sq+q, sxq+x*q, sqq+q*q
		}
		if a, b := line(float64(len(points[0])), sx, sq, sxq, sqq); math.Abs(a-want[0]) > 1e-9 || math.Abs(b-want[1]) > 1e-9 {
			t.Errorf("points %v give %v·q + %v, want %v", points, a, b, want)
		}
	}
}

func TestHardBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	constant, one, tiny, large := make([]float32, 256), make([]float32, 256), normal(r, 256), normal(r, 256)
	for i := range constant {
		constant[i] = -0.25
		tiny[i] *= 1e-38
		large[i] *= 1e5
	}
	one[77] = 3
	positive := normal(r, 256)
	for i := range positive {
		positive[i] = abs(positive[i]) + 1
	}
	for name, x := range map[string][]float32{"zero": make([]float32, 256), "constant": constant, "one": one, "tiny": tiny, "large": large, "positive": positive} {
		for _, typ := range Types {
			raw := Encode([]byte{7}, typ, x)
			if len(raw) != 1+typ.Bytes(256) || raw[0] != 7 {
				t.Fatalf("%v of %s: %d bytes", typ, name, len(raw))
			}
			got := make([]float32, 256)
			kernels.Dequantize(got, typ, raw[1:])
			scale := float64(abs(extreme(x)))
			for i := range got {
				if d := math.Abs(float64(got[i] - x[i])); !(d <= 0.2*scale+1e-6) {
					t.Fatalf("%v of %s: element %d is %v, not %v", typ, name, i, got[i], x[i])
				}
			}
		}
	}
}

// TestHalvesAreRoundedToTheNearest compares with the definition, for every half and
// what lies between it and the next.
func TestHalvesAreRoundedToTheNearest(t *testing.T) {
	value := func(h uint16) float64 {
		var out [1]float32
		kernels.Dequantize(out[:], kernels.F16, []byte{byte(h), byte(h >> 8)})
		return float64(out[0])
	}
	for h := uint16(0); h < 0x7bff; h++ {
		a, b := value(h), value(h+1)
		for x, want := range map[float64]uint16{a: h, a + (b-a)*0.25: h, a + (b-a)*0.75: h + 1, (a + b) / 2: h + h&1} {
			if got := half(float32(x)); got != want {
				t.Fatalf("%v becomes %#x, want %#x", x, got, want)
			}
			if got := half(float32(-x)); got != want|0x8000 {
				t.Fatalf("%v becomes %#x, want %#x", -x, got, want|0x8000)
			}
		}
	}
	if half(65519) != 0x7bff || half(65520) != 0x7c00 || half(float32(math.Inf(-1))) != 0xfc00 || half(float32(math.NaN()))&0x7c00 != 0x7c00 {
		t.Error("the largest numbers")
	}
	bf := Encode(nil, kernels.BF16, []float32{math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000), 1.00001})
	if !bytes.Equal(bf, []byte{0x80, 0x3f, 0x82, 0x3f, 0x80, 0x3f}) {
		t.Errorf("bfloat16s % x", bf)
	}
}

func parse(t *testing.T, b *gguftest.Builder) *gguf.File {
	t.Helper()
	f, err := gguf.Parse("tiny.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFileIsAModelInOtherTypes: the view computes, and what is written of it reads
// as the same.
func TestFileIsAModelInOtherTypes(t *testing.T) {
	f := parse(t, gguftest.TinyBuilder(gguftest.Tiny{Embed: 256, FF: 288, Untied: true}))
	team := kernels.NewTeam(2)
	defer team.Close()
	logits := func(f *gguf.File) []float32 {
		m, err := model.Load(f, kernels.Best(), team, model.Options{ContextTokens: 16})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return append([]float32(nil), m.Forward([]model.Chunk{{Tokens: []int32{5, 6, 7}, Pages: []int32{0}, Logits: 1}})...)
	}
	digests := map[string]bool{}
	for typ, want := range map[kernels.Type]map[string]kernels.Type{
		kernels.Q8_0: {"blk.0.attn_q.weight": kernels.Q8_0, "output.weight": kernels.Q8_0, "blk.0.ffn_down.weight": kernels.Q8_0},
		kernels.Q4_K: {"blk.0.attn_q.weight": kernels.Q4_K, "output.weight": kernels.Q6_K, "blk.0.ffn_down.weight": kernels.Q8_0, "blk.0.attn_norm.weight": kernels.F32},
		kernels.Q6_K: {"token_embd.weight": kernels.Q6_K},
		kernels.Q4_0: {"blk.1.ffn_down.weight": kernels.Q4_0, "token_embd.weight": kernels.Q6_K},
	} {
		view, err := File(f, typ)
		if err != nil {
			t.Fatal(err)
		}
		for name, kind := range want {
			if got, _ := view.Tensor(name); got.Type != kind {
				t.Errorf("%v: tensor %s is %v, want %v", typ, name, got.Type, kind)
			}
		}
		var out bytes.Buffer
		if err := gguf.Write(&out, view, nil); err != nil {
			t.Fatal(err)
		}
		written, err := gguf.Parse("written", out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		a, b := logits(view), logits(written)
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("%v: logit %d is %v, of the written file %v", typ, i, a[i], b[i])
			}
		}
		if n, _, _ := written.Uint("general.file_type"); n != map[kernels.Type]uint64{kernels.Q4_0: 2, kernels.Q8_0: 7, kernels.Q4_K: 14, kernels.Q6_K: 18}[typ] {
			t.Errorf("%v: general.file_type is %d", typ, n)
		}
		digests[view.Digest()] = true
		if view.Digest() == f.Digest() || written.SizeBytes() >= f.SizeBytes() {
			t.Errorf("%v: digest %s, %d bytes of %d", typ, view.Digest(), written.SizeBytes(), f.SizeBytes())
		}
		again, _ := File(written, typ)
		for i := range again.Tensors {
			if again.Tensors[i].Make != nil {
				t.Errorf("%v: tensor %s is quantised twice", typ, again.Tensors[i].Name)
			}
		}
		if typ == kernels.Q4_0 { // as large as Q4_K: nothing is won
			other, _ := File(written, kernels.Q4_K)
			if got, _ := other.Tensor("blk.0.attn_q.weight"); got.Type != typ {
				t.Errorf("a tensor of Q4_0 becomes %v", got.Type)
			}
		}
	}
	if len(digests) != 4 {
		t.Errorf("%d digests for 4 types", len(digests))
	}
}

func TestWhatIsNoMatrixStaysAsItIs(t *testing.T) {
	const q, f32 = kernels.Q8_0, kernels.F32
	for name, want := range map[string]kernels.Type{
		"blk.0.attn_q.weight": q, "blk.0.ffn_gate_exps.weight": q, "blk.0.ffn_gate_exps.bias": f32, "blk.0.ffn_gate_inp.weight": f32,
	} {
		b := (&gguftest.Builder{}).Tensor(name, f32, []int{32, 2}, make([]byte, 4*64))
		view, err := File(parse(t, b), q)
		if err != nil {
			t.Fatal(err)
		}
		if got := view.Tensors[0].Type; got != want {
			t.Errorf("%s becomes %v, want %v", name, got, want)
		}
	}
}

func TestNumbersThatAreNotFiniteAreRefusedByName(t *testing.T) {
	x := make([]float32, 64)
	x[33] = float32(math.Inf(1))
	b := (&gguftest.Builder{}).Set("general.architecture", "llama").Tensor("blk.0.attn_q.weight", kernels.F32, []int{32, 2}, gguftest.Encode(kernels.F32, x))
	view, err := File(parse(t, b), kernels.Q8_0)
	if err != nil {
		t.Fatal(err)
	}
	if err := gguf.Write(&bytes.Buffer{}, view, nil); err == nil || !strings.Contains(err.Error(), "tensor blk.0.attn_q.weight: could not be made: it holds a number that is not finite") {
		t.Errorf("error %v", err)
	}
	team := kernels.NewTeam(1)
	defer team.Close()
	for _, name := range []string{"token_embd.weight", "output.weight", "blk.1.ffn_up.weight"} {
		whole := parse(t, gguftest.TinyBuilder(gguftest.Tiny{Embed: 256, FF: 288, Untied: true}))
		tensor, _ := whole.Tensor(name)
		data := bytes.Clone(tensor.Data)
		copy(data[400:], []byte{0, 0, 0x80, 0x7f}) // infinity
		tensor.Data = data
		if view, err = File(whole, kernels.Q8_0); err != nil {
			t.Fatal(err)
		}
		if _, err := model.Load(view, kernels.Best(), team, model.Options{}); err == nil || !strings.Contains(err.Error(), "tensor "+name+": could not be made") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestParseType(t *testing.T) {
	if typ, err := ParseType("q4_K"); err != nil || typ != kernels.Q4_K {
		t.Errorf("%v, %v", typ, err)
	}
	if _, err := ParseType("q3_k"); err == nil || !strings.Contains(err.Error(), "give one of q8_0, q4_0, q4_k, q6_k") {
		t.Errorf("error %v", err)
	}
}

func BenchmarkEncode(b *testing.B) {
	x := normal(rand.New(rand.NewPCG(1, 1)), 1<<16)
	for _, typ := range Types {
		dst := make([]byte, 0, typ.Bytes(len(x)))
		b.Run(typ.String(), func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			for b.Loop() {
				Encode(dst, typ, x)
			}
		})
	}
}
