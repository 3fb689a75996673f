package ref

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestHalfEveryValue(t *testing.T) {
	for h := range 1 << 16 {
		exponent, fraction := h>>10&31, h&0x3ff
		want := math.Ldexp(float64(fraction+1<<10), exponent-25)
		switch {
		case exponent == 0:
			want = math.Ldexp(float64(fraction), -24)
		case exponent == 31 && fraction == 0:
			want = math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		}
		if h>>15 == 1 {
			want = -want
		}
		got := Half(uint16(h))
		if want != want && got != got {
			continue
		}
		if math.Float32bits(got) != math.Float32bits(float32(want)) {
			t.Fatalf("Half(%#04x) = %v, want %v", h, got, want)
		}
	}
}

func TestDequantize(t *testing.T) {
	q8 := append([]byte{0x00, 0x38}, make([]byte, 32)...) // d = 0.5
	q8[2], q8[3], q8[33] = 3, 0x80, 0xff
	q4 := append([]byte{0x01, 0x80}, make([]byte, 16)...) // d = −2⁻²⁴, the smallest half
	for j := range 16 {
		q4[2+j] = byte(15-j)<<4 | byte(j)
	}
	var want4 []float32
	for j := range 16 {
		want4 = append(want4, -0x1p-24*float32(j-8))
	}
	for j := range 16 {
		want4 = append(want4, -0x1p-24*float32(7-j))
	}
	want8 := make([]float32, 32)
	want8[0], want8[1], want8[31] = 1.5, -64, -0.5
	for name, c := range map[string]struct {
		t    uint32
		src  []byte
		want []float32
	}{
		"F32":  {F32, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}, []float32{1, -2}},
		"F16":  {F16, []byte{0, 0x3c, 0, 0xc0}, []float32{1, -2}},
		"BF16": {BF16, []byte{0x80, 0x3f, 0, 0xc0}, []float32{1, -2}},
		"Q8_0": {Q8_0, q8, want8},
		"Q4_0": {Q4_0, q4, want4},
	} {
		got := make([]float32, len(c.want))
		Dequantize(got, c.t, c.src)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestDequantizeMatchesReference has random blocks of every type in blocks, with
// the values that gguf-py 0.19 gives for them, bit for bit.
func TestDequantizeMatchesReference(t *testing.T) {
	text, err := os.ReadFile("testdata/dequantize.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for line := range strings.Lines(string(text)) {
		var c struct {
			Type        string
			ID          uint32
			Raw, Values string
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		raw, _ := hex.DecodeString(c.Raw)
		want, _ := hex.DecodeString(c.Values)
		got := make([]float32, len(want)/4)
		Dequantize(got, c.ID, raw)
		for i, v := range got {
			if bits := binary.LittleEndian.Uint32(want[4*i:]); math.Float32bits(v) != bits {
				t.Fatalf("%s: element %d is %v, want %v", c.Type, i, v, math.Float32frombits(bits))
			}
		}
		seen[c.ID] = true
	}
	for id := range blocks {
		if !seen[id] {
			t.Errorf("no reference for type %d", id)
		}
	}
}

// TestMatMulByHand places the row of x, the row of weights and the stride.
func TestMatMulByHand(t *testing.T) {
	m := Matrix{Type: BF16, Cols: 2, RowBytes: 4, Data: []byte{
		0x80, 0x3f, 0x00, 0x40, // 1 2
		0x40, 0x40, 0x80, 0x40, // 3 4
		0xa0, 0x40, 0xc0, 0x40, // 5 6
	}}
	dst := make([]float32, 8)
	MatMul(dst, 4, m, []float32{1, 10, 2, 20}, 2, 1, 3)
	if want := []float32{0, 43, 65, 0, 0, 86, 130, 0}; !slices.Equal(dst, want) {
		t.Errorf("%v, want %v", dst, want)
	}
}

// TestAttendByHand: a query that sees one key only gives that key's value; equal
// keys give the mean of the values; the query after it has moved on by one.
func TestAttendByHand(t *testing.T) {
	l := KVLayout{KVType: KVF32, PageTokens: 2, KVHeads: 2, HeadDim: 2}
	pool := func(numbers ...float32) []byte {
		b := make([]byte, l.PoolBytes(2))
		for i, x := range numbers {
			binary.LittleEndian.PutUint32(b[i/4*l.BlockBytes()+i%4*4:], math.Float32bits(x))
		}
		return b
	}
	a := Attention{
		KVLayout: l, Q: []float32{100, 0, 0, 0, 0, 0, 0, 0}, Out: make([]float32, 8), Queries: 2, Stride: 4, Group: 2,
		// two pages of two positions, two KV heads; head 1 of positions 0, 1 lies in page 1
		K:     pool(9, 9, 9, 9, 1, 9, 0, 9, 9, 9, 9, 9, 9, 0, 9, 1),
		V:     pool(9, 9, 9, 9, 30, 60, 9, 9, 9, 9, 9, 9, 9, 9, 90, 120),
		Pages: []int32{1, 0}, KVHead: 1, To: 3, Window: 2, Scale: 2,
		Scores: make([]float32, 4),
	}
	Attend(&a)
	want := []float32{30, 60, 60, 90, 19.5, 34.5, 19.5, 34.5}
	for i, w := range want {
		if math.Abs(float64(a.Out[i]-w)) > 1e-5 {
			t.Fatalf("%v, want %v", a.Out, want)
		}
	}
}

func TestNormAndActivationsByHand(t *testing.T) {
	x := []float32{3, 4}
	RMSNorm(x, x, []float32{1, 2}, 0)
	y := []float32{0, float32(math.Log(3))}
	Softmax(y)
	z := []float32{0, 1}
	SiLUMul(z, z, []float32{5, 2})
	Add(z, []float32{1, 1})
	got := slices.Concat(x, y, z)
	want := []float64{3 / math.Sqrt(12.5), 8 / math.Sqrt(12.5), 0.25, 0.75, 1, 1 + 2/(1+math.Exp(-1))}
	for i, w := range want {
		if math.Abs(float64(got[i])-w) > 1e-6 {
			t.Errorf("[%d] %v, want %v", i, got[i], w)
		}
	}
}
