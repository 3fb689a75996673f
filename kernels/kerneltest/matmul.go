package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/ref"
)

// product is one random matrix product with ref's result.
type product struct {
	rows, cols, n int
	raw           []byte
	x, want       []float32
	tolerance     []float64
}

func (c *checker) newProduct(seed uint64, t kernels.Type, rows, cols, n int) *product {
	r := random(seed)
	return c.productOf(t, &product{rows: rows, cols: cols, n: n, raw: Weights(r, t, rows*cols), x: normal(r, n*cols)})
}

// productOf computes the product of weights and activations with ref.
func (c *checker) productOf(t kernels.Type, p *product) *product {
	rows, cols, n := p.rows, p.cols, p.n
	c.refer(t, p)
	x := c.seen(t, p.x)
	w := make([]float32, rows*cols)
	kernels.Dequantize(w, t, p.raw)
	p.tolerance = make([]float64, n*rows)
	bound := w
	if withMinimum[t] {
		bound = largestOfBlocks(w)
	}
	for i := range n {
		for row := range rows {
			sum, squares := 0.0, 0.0
			for j, v := range x[i*cols:][:cols] {
				term := float64(v) * float64(bound[row*cols+j])
				sum += math.Abs(term)
				squares += term * term
			}
			p.tolerance[i*rows+row] = 16*u*math.Sqrt(float64(cols)*squares) + 4*u*sum
		}
	}
	return p
}

// refer computes with ref the product of the activations that the set sees.
func (c *checker) refer(t kernels.Type, p *product) {
	p.want = make([]float32, p.n*p.rows)
	c.ref.MatMul(p.want, p.rows, c.ref.Pack(t, p.rows, p.cols, p.raw), kernels.Input{Numbers: c.seen(t, p.x)}, p.n, 0, p.rows)
}

// rounds reports whether the set reads blocks for matrices of type t.
func (c *checker) rounds(t kernels.Type) bool {
	return c.set.Round != nil && t.BlockLen() > 1 && c.set.InAssembly(t)
}

// seen is x as the set's MatMul reads it: where it rounds, the numbers of its blocks.
func (c *checker) seen(t kernels.Type, x []float32) []float32 {
	if !c.rounds(t) {
		return x
	}
	blocks, seen := make([]kernels.Block, len(x)/kernels.BlockLen), make([]float32, len(x))
	ref.Round(blocks, x)
	for i := range seen {
		seen[i] = blocks[i/kernels.BlockLen].Number(i % kernels.BlockLen)
	}
	return seen
}

// input is x for the set's MatMul, without what it should not read.
func (c *checker) input(t kernels.Type, x []float32) kernels.Input {
	if !c.rounds(t) {
		return kernels.Input{Numbers: x}
	}
	return kernels.Input{Blocks: c.set.Input(x).Blocks}
}

// first is the product of the first rows of the weights and the first n of x.
func (p *product) first(rows, n int) *product {
	q := &product{rows: rows, cols: p.cols, n: n, raw: p.raw[:len(p.raw)/p.rows*rows], x: p.x[:n*p.cols]}
	for i := range n {
		q.want = append(q.want, p.want[i*p.rows:][:rows]...)
		q.tolerance = append(q.tolerance, p.tolerance[i*p.rows:][:rows]...)
	}
	return q
}

// withMinimum are the types whose numbers are a minimum and a difference. Sets may multiply
// the two with the activations separately, so their rounding counts.
var withMinimum = map[kernels.Type]bool{
	kernels.Q4_1: true, kernels.Q5_1: true, kernels.Q2_K: true, kernels.Q4_K: true, kernels.Q5_K: true,
}

// largestOfBlocks replaces each number by the largest magnitude among its 16.
func largestOfBlocks(w []float32) []float32 {
	most := make([]float32, len(w))
	for i := range w {
		for _, v := range w[i/16*16:][:16] {
			most[i] = max(most[i], v, -v)
		}
	}
	return most
}

// columns is n rounded up to whole blocks of a type.
func columns(t kernels.Type, n int) int {
	block := t.BlockLen()
	return (n + block - 1) / block * block
}

func (c *checker) compare(t *testing.T, typ kernels.Type, p *product) {
	t.Helper()
	got := make([]float32, p.n*p.rows)
	c.set.MatMul(got, p.rows, c.set.Pack(typ, p.rows, p.cols, p.raw), c.input(typ, p.x), p.n, 0, p.rows)
	for i := range got {
		if !near(got[i], p.want[i], p.tolerance[i]) {
			t.Fatalf("%v %d×%d, n %d: output %d of row %d is %v, ref %v, tolerance %g",
				typ, p.rows, p.cols, p.n, i%p.rows, i/p.rows, got[i], p.want[i], p.tolerance[i])
		}
	}
}

// matMulEveryShape varies one dimension at a time, and all of them at random.
func (c *checker) matMulEveryShape(t *testing.T) {
	for _, typ := range c.types() {
		block := typ.BlockLen()
		for cols := block; cols <= max(740, 5*block); cols += block {
			if cols > 200 && block == 1 {
				cols += 28
			}
			c.compare(t, typ, c.newProduct(uint64(cols), typ, 19, cols, 2))
		}
		p := c.newProduct(1, typ, 70, columns(typ, 3*32), 17)
		for rows := 1; rows <= 70; rows++ {
			c.compare(t, typ, p.first(rows, 3))
		}
		for n := 1; n <= 17; n++ {
			c.compare(t, typ, p.first(35, n))
		}
		r := random(7)
		for range 8 {
			cols := columns(typ, 1+r.IntN(640))
			c.compare(t, typ, c.newProduct(r.Uint64(), typ, 1+r.IntN(70), cols, 1+r.IntN(17)))
		}
	}
}

// matMulExtremes has weights with all bits set, none, or the highest of each byte, and
// activations that round to the largest bytes, beside outliers whose lower bytes are the
// lowest: sums of integers must have room for all of them.
func (c *checker) matMulExtremes(t *testing.T) {
	const rows, n = 35, 24
	for _, typ := range c.types() {
		if typ.BlockLen() == 1 {
			continue
		}
		for _, fill := range []byte{0, 0xff, 0x80, 0x7f} {
			r, cols := random(uint64(fill)), columns(typ, 64)
			p := &product{rows: rows, cols: cols, n: n, raw: Weights(r, typ, rows*cols), x: make([]float32, n*cols)}
			fillElements(p.raw, typ, fill)
			for i := range p.x {
				p.x[i] = 127
				if group := i / ref.GroupLen % (kernels.BlockLen / ref.GroupLen); group == i/kernels.BlockLen%8 {
					p.x[i] = float32(128 + 256*(r.IntN(253)-127))
				}
				if i/cols%2 == 1 || i/cols%4 > 1 && r.IntN(2) == 0 {
					p.x[i] = -p.x[i]
				}
			}
			c.compare(t, typ, c.productOf(typ, p))
		}
	}
}

// matMulInvariant cuts n and the rows at random; every output must keep its bits.
func (c *checker) matMulInvariant(t *testing.T) {
	const rows, n = 16*9 + 5, 19
	for _, typ := range c.types() {
		cols := columns(typ, 7*32)
		if typ.BlockLen() == 1 {
			cols += 13
		}
		p := c.newProduct(3, typ, rows, cols, n)
		m := c.set.Pack(typ, rows, cols, p.raw)
		whole := make([]float32, n*rows)
		c.set.MatMul(whole, rows, m, c.input(typ, p.x), n, 0, rows)
		r := random(5)
		for range 50 {
			got := make([]float32, n*rows)
			for i := 0; i < n; {
				count := min(n-i, 1+r.IntN(8))
				for r0 := 0; r0 < rows; {
					r1 := min(rows, r0+16*(1+r.IntN(4)))
					c.set.MatMul(got[i*rows:], rows, m, c.input(typ, p.x[i*cols:]), count, r0, r1)
					r0 = r1
				}
				i += count
			}
			if at := sameBits(got, whole); at >= 0 {
				t.Fatalf("%v: output %d of row %d is %v in pieces and %v whole", typ, at%rows, at/rows, got[at], whole[at])
			}
		}
	}
}

// matMulUnaligned packs from odd addresses, as a mapped file may give.
func (c *checker) matMulUnaligned(t *testing.T) {
	for _, typ := range c.types() {
		p := c.newProduct(9, typ, 33, columns(typ, 64), 3)
		for shift := 1; shift < 8; shift += 2 {
			p.raw = append(make([]byte, shift, shift+len(p.raw)), p.raw...)[shift:]
			c.compare(t, typ, p)
		}
	}
}

// matMulBounds checks that a call with a wide stride leaves everything else alone.
func (c *checker) matMulBounds(t *testing.T) {
	const stride, mark, n = 80, 12345, 19
	for _, typ := range c.types() {
		all := c.newProduct(1, typ, 48, columns(typ, 32), n)
		for rows := 1; rows <= 48; rows++ {
			p := all.first(rows, n)
			m := c.set.Pack(typ, rows, p.cols, p.raw)
			got := make([]float32, n*stride)
			for i := range got {
				got[i] = mark
			}
			r0 := (rows - 1) / 16 * 16
			c.set.MatMul(got, stride, m, c.input(typ, p.x), n, r0, rows)
			for i, v := range got {
				if in := i%stride >= r0 && i%stride < rows; in == (v == mark) {
					t.Fatalf("%v rows [%d,%d): output %d is %v", typ, r0, rows, i%stride, v)
				}
			}
		}
	}
}

// matMulNonFinite puts one NaN or ∞ into the weights or the activations: it must reach the
// outputs that it reaches in ref, and no others.
func (c *checker) matMulNonFinite(t *testing.T) {
	const rows, n = 37, 19
	for _, typ := range c.types() {
		cols := columns(typ, 96)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			p := c.newProduct(11, typ, rows, cols, n)
			p.x[3*cols+17] = bad
			if withMinimum[typ] {
				c.compareBroken(t, typ, p, 3)
			} else {
				c.compareNonFinite(t, typ, p)
			}
		}
		for _, bad := range []uint16{0x7c00, 0xfc00, 0x7e00} {
			at := scalesOf(typ)
			switch {
			case len(at) == 0: // every scale is finite
				continue
			case typ.BlockLen() > 1 && bad != 0x7e00:
				c.infiniteScale(t, typ, bad)
				continue
			}
			p := c.newProduct(11, typ, rows, cols, n)
			place := typ.Bytes(cols)*5 + at[0]
			if typ == kernels.F32 || typ == kernels.BF16 {
				place += typ.BlockBytes() - 2
				bad |= 0x7f80
			}
			binary.LittleEndian.PutUint16(p.raw[place:], bad)
			c.compareNonFinite(t, typ, p)
		}
	}
}

// compareBroken: row bad of x holds one number that is not finite. Its outputs must not be
// finite either, but may differ from ref's, since ∞ may meet its negative. All others stay.
func (c *checker) compareBroken(t *testing.T, typ kernels.Type, p *product, bad int) {
	t.Helper()
	got := make([]float32, p.n*p.rows)
	c.set.MatMul(got, p.rows, c.set.Pack(typ, p.rows, p.cols, p.raw), c.input(typ, p.x), p.n, 0, p.rows)
	for i, v := range got {
		if finite := v-v == 0; finite == (i/p.rows == bad) || finite && !near(v, p.want[i], p.tolerance[i]) {
			t.Fatalf("%v: output %d of row %d is %v, ref %v without what is not finite in row %d", typ, i%p.rows, i/p.rows, v, p.want[i], bad)
		}
	}
}

// infiniteScale: the row's outputs must not be finite. ref sums ∞·q over a block to NaN; the
// sets may multiply ∞ with the block's sum. The other rows stay.
func (c *checker) infiniteScale(t *testing.T, typ kernels.Type, scale uint16) {
	const rows, n, bad = 37, 19, 5
	cols := columns(typ, 96)
	p := c.newProduct(11, typ, rows, cols, n)
	binary.LittleEndian.PutUint16(p.raw[typ.Bytes(cols)*bad+scalesOf(typ)[0]:], scale)
	got := make([]float32, n*rows)
	c.set.MatMul(got, rows, c.set.Pack(typ, rows, cols, p.raw), c.input(typ, p.x), n, 0, rows)
	for i, v := range got {
		if finite := v-v == 0; finite == (i%rows == bad) || finite && !near(v, p.want[i], p.tolerance[i]) {
			t.Fatalf("%v with an infinite scale in row %d: output %d is %v, ref without it %v", typ, bad, i%rows, v, p.want[i])
		}
	}
}

func (c *checker) compareNonFinite(t *testing.T, typ kernels.Type, p *product) {
	t.Helper()
	c.refer(typ, p)
	c.compare(t, typ, p)
}

// roundEveryBlock compares the rounding with ref's, bit for bit: usual numbers, outliers, the
// extremes that still have a scale, ties, and numbers that are not finite.
func (c *checker) roundEveryBlock(t *testing.T) {
	if c.set.Round == nil {
		t.Skip("the set reads numbers")
	}
	r := random(13)
	bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, 0}
	var groups [8]int
	for n := range 800 {
		x := normal(r, kernels.BlockLen*(1+n%5))
		by := float32(math.Exp2(float64(n%250 - 125)))
		for i := range x {
			x[i] *= by
			if n%3 == 0 {
				x[i] = float32(r.IntN(255)-127) + float32(r.IntN(2))/2
			}
		}
		if n%2 == 0 {
			x[r.IntN(len(x))] *= float32(math.Exp2(12 * r.Float64()))
		}
		if n%4 == 0 {
			x[r.IntN(len(x))] = bad[n/4%len(bad)]
		}
		got, want := make([]kernels.Block, len(x)/kernels.BlockLen), make([]kernels.Block, len(x)/kernels.BlockLen)
		c.set.Round(got, x)
		ref.Round(want, x)
		for i := range got {
			groups[got[i].Group/16]++
			if a, b := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i]); a != b {
				t.Fatalf("%v:\n%s, ref\n%s", x[i*kernels.BlockLen:][:kernels.BlockLen], a, b)
			}
		}
	}
	if slices.Min(groups[:]) < 100 {
		t.Errorf("the groups with two bytes are %d", groups)
	}
}
