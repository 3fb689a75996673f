package ref

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestToHalfIsTheNearest compares with all halves: none may be nearer, and a tie goes to the
// even one.
func TestToHalfIsTheNearest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for h := range 0x7c00 {
		x, next := Half(uint16(h)), Half(uint16(h+1))
		if h == 0x7bff {
			next = 65536
		}
		middle := (x + next) / 2
		even := uint16(h + h&1)
		if h == 0x7bff {
			even = 0x7bff // the largest
		}
		for in, want := range map[float32]uint16{
			x: uint16(h), middle: even,
			math.Nextafter32(middle, 0):               uint16(h),
			x + (middle-x)*r.Float32()*0.99:           uint16(h),
			math.Nextafter32(middle, math.MaxInt32):   min(uint16(h+1), 0x7bff),
			next - (next-middle)*(0.01+r.Float32()/2): min(uint16(h+1), 0x7bff),
		} {
			if got := ToHalf(in); got != want {
				t.Fatalf("%g becomes %#x, want %#x", in, got, want)
			}
			if got := ToHalf(-in); got != want|0x8000 {
				t.Fatalf("%g becomes %#x, want %#x", -in, got, want|0x8000)
			}
		}
	}
	for _, in := range []float32{65504, 65520, 1e9, math.MaxFloat32, float32(math.Inf(1))} {
		if up, down := Half(ToHalf(in)), Half(ToHalf(-in)); up != 65504 || down != -65504 {
			t.Errorf("±%g become %g and %g", in, up, down)
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fffffff, 0xffc00000} {
		if x := Half(ToHalf(math.Float32frombits(bits))); x == x {
			t.Errorf("NaN %#x becomes %g", bits, x)
		}
	}
}

// TestPlacedNumbersComeBack: numbers that Place writes are read back, within the type's
// rounding, in every slot.
func TestPlacedNumbersComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for typ, bound := range map[KVType]func(x, top float64) float64{
		KVF32:  func(x, top float64) float64 { return 0 },
		KVF16:  func(x, top float64) float64 { return max(x*0x1p-11, 0x1p-25) },
		KVInt8: func(x, top float64) float64 { return top/254 + 2e-7*top },
		KVBF16: func(x, top float64) float64 { return x * 0x1p-8 },
		KVFP8:  func(x, top float64) float64 { return max(x*0x1p-4, top/448*0x1p-10) * (1 + 1e-6) },
	} {
		l := KVLayout{KVType: typ, PageTokens: 5, KVHeads: 2, HeadDim: 13}
		keys, values := make([]byte, l.PoolBytes(3)), make([]byte, l.PoolBytes(3))
		var rows [15][2][]float32
		for i := range rows {
			for j := range rows[i] {
				for range 26 {
					rows[i][j] = append(rows[i][j], float32(r.NormFloat64()*math.Exp2(r.Float64()*10)))
				}
			}
			l.Place(keys, values, i/5, i%5, rows[i][0], rows[i][1])
		}
		for i := range rows {
			for n := range 26 {
				head, d, slot := n/13, n%13, i%5
				for j, at := range []int{d*5 + slot, slot*13 + d} {
					block := [][]byte{keys, values}[j][l.Block(i/5, head):]
					x := rows[i][j]
					top := float64(absMax(x[head*13 : head*13+13]))
					got := float64(l.number(block, at)) * float64(l.scale(block, slot))
					if math.Abs(got-float64(x[n])) > bound(math.Abs(float64(x[n])), top) {
						t.Fatalf("%v: token %d, number %d of pool %d is %g, was %g", typ, i, n, j, got, x[n])
					}
				}
			}
		}
	}
}

// TestInt8OfBrokenNumbers: a NaN or an infinity makes its row NaN and no other; numbers too
// small for a scale are 0.
func TestInt8OfBrokenNumbers(t *testing.T) {
	l := KVLayout{KVType: KVInt8, PageTokens: 2, KVHeads: 1, HeadDim: 3}
	keys, values := make([]byte, l.PoolBytes(1)), make([]byte, l.PoolBytes(1))
	l.Place(keys, values, 0, 0, []float32{1, 2, float32(math.NaN())}, []float32{1, float32(math.Inf(-1)), 0})
	l.Place(keys, values, 0, 1, []float32{1, 2, 3}, []float32{1e-39, -1e-40, 0})
	for _, pool := range [][]byte{keys, values} {
		if s := l.scale(pool, 0); s == s {
			t.Errorf("a row with a broken number has the scale %g", s)
		}
	}
	if s := l.scale(keys, 1); s != float32(3)/127 {
		t.Errorf("the row beside it has the scale %g", s)
	}
	for d := range 3 {
		if x := l.number(values, 3+d) * l.scale(values, 1); x != 0 {
			t.Errorf("a tiny number becomes %g", x)
		}
	}
}

func TestParseKVType(t *testing.T) {
	for _, typ := range []KVType{KVF32, KVF16, KVInt8, KVBF16, KVFP8} {
		if got, err := ParseKVType(typ.String()); got != typ || err != nil {
			t.Errorf("%v: %v, %v", typ, got, err)
		}
	}
	if _, err := ParseKVType("f8"); err == nil {
		t.Error("f8 is taken")
	}
	if KVType(5).Known() || !KVFP8.Known() {
		t.Error("Known is wrong")
	}
	if KVInt8.GPUOnly() || !KVBF16.GPUOnly() {
		t.Error("GPUOnly is wrong")
	}
}
