//go:build amd64 && !purego

package avx512bf16_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/forebay-io/forebay/kernels/avx512bf16"
	"github.com/forebay-io/forebay/kernels/ref"
)

func skipWithout(t *testing.T) {
	if x := &cpu.X86; !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512BF16 {
		t.Skip("this processor has no AVX-512 BF16")
	}
}

// multiplyAdd is a·b+c with one rounding, and subnormal results as zero. The product of
// two bfloat16 numbers is exact in float64; the sum is rounded to odd there.
func multiplyAdd(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c)
	s := p + z
	back := s - p
	if e := (p - (s - back)) + (z - back); e != 0 && math.Float64bits(s)&1 == 0 {
		if (e > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	if r := float32(s); math.Abs(float64(r)) >= 0x1p-126 || r != r {
		return r
	}
	return float32(math.Copysign(0, s))
}

// round is x as bfloat16, subnormal numbers as zero.
func round(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 != 0 {
		return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
	}
	return float32(math.Copysign(0, float64(x)))
}

// wide is a number of any size whose products do not overflow.
func wide(r *rand.Rand) float32 {
	return float32(math.Ldexp(r.NormFloat64(), r.IntN(20)-10*r.IntN(2)*r.IntN(12)))
}

// weighed is a task for Accumulate: rows of weights and of values.
type weighed struct {
	rows, dim, count int
	halves           []byte      // [count][dim]
	v                [][]float32 // as rounded
	p                []float32   // [rows][count+1]
	out              []float32
}

func newWeighed(r *rand.Rand, rows, dim, count int) *weighed {
	w := &weighed{rows: rows, dim: dim, count: count, halves: make([]byte, 2*count*dim+64), out: make([]float32, rows*dim)}
	for t := range count {
		w.v = append(w.v, make([]float32, dim))
		for d := range dim {
			h := ref.ToHalf(wide(r))
			w.halves[2*(t*dim+d)], w.halves[2*(t*dim+d)+1] = byte(h), byte(h>>8)
			w.v[t][d] = round(ref.Half(h))
		}
	}
	for range rows * (count + 1) {
		w.p = append(w.p, wide(r))
	}
	return w
}

func (w *weighed) want() []float32 {
	out := append([]float32(nil), w.out...)
	for i := range out {
		for t := range w.count {
			out[i] = multiplyAdd(round(w.p[i/w.dim*(w.count+1)+t]), w.v[t][i%w.dim], out[i])
		}
	}
	return out
}

// TestSumsGoOnInOrder checks on the processor what makes outputs independent of the cuts by
// pages, windows and chunks: a pair's upper product is added first, with a rounding of its
// own, and a number alone changes nothing else.
func TestSumsGoOnInOrder(t *testing.T) {
	skipWithout(t)
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		w := newWeighed(r, 1+r.IntN(14), 1+r.IntN(150), 1+r.IntN(30))
		want := w.want()
		stride := w.count + 1
		p := make([]float32, len(w.p))
		for i := range w.rows {
			avx512bf16.PairNumbers(&p[i*stride], &w.p[i*stride], stride)
		}
		width := (w.dim + avx512bf16.Lanes - 1) / avx512bf16.Lanes * avx512bf16.Lanes
		v := make([]float32, (w.count+1)/2*width)
		avx512bf16.PairHalves(&v[0], &w.halves[0], w.dim, w.dim, w.count, &w.halves[0])
		kept, fused := append([]float32(nil), w.out...), append([]float32(nil), w.out...)
		for at := 0; at < w.count; {
			n := 1 + r.IntN(w.count-at)
			avx512bf16.Accumulate(&kept[0], w.dim, w.rows, &v[at/2*width], &p[at], stride, at%2, n)
			avx512bf16.AccumulateHalves(&fused[0], w.dim, w.rows, &w.halves[2*at*w.dim], &p[at], stride, n, &w.halves[0])
			at += n
		}
		for i := range want {
			for name, got := range map[string]float32{"Accumulate": kept[i], "AccumulateHalves": fused[i]} {
				if math.Float32bits(got) != math.Float32bits(want[i]) {
					t.Fatalf("task %d, %s: %d rows of %d, %d positions: [%d] is %v (%08x), want %v (%08x)",
						round, name, w.rows, w.dim, w.count, i, got, math.Float32bits(got), want[i], math.Float32bits(want[i]))
				}
			}
		}
	}
}

// TestPairNumbers: each word has a number and the next one, and the sum is that of the rounded ones.
func TestPairNumbers(t *testing.T) {
	skipWithout(t)
	r := rand.New(rand.NewPCG(1, 3))
	for n := 1; n < 80; n++ {
		x := make([]float32, n+1)
		sum, size := 0.0, 0.0
		for i := range x {
			x[i] = wide(r)
			if i < n {
				sum, size = sum+float64(round(x[i])), size+math.Abs(float64(x[i]))
			}
		}
		words := append([]float32(nil), x...)
		got := avx512bf16.PairNumbers(&words[0], &words[0], n)
		if math.Abs(float64(got)-sum) > 1e-6*size {
			t.Errorf("the sum of %d is %v, want %v", n, got, sum)
		}
		for i := range n {
			want := math.Float32bits(round(x[i]))
			if i < n-1 {
				want |= math.Float32bits(round(x[i+1])) >> 16
			}
			if got := math.Float32bits(words[i]); got != want {
				t.Errorf("word %d of %d is %08x, want %08x", i, n, got, want)
			}
		}
		if words[n] != x[n] {
			t.Errorf("word %d of %d is written", n, n)
		}
	}
}
