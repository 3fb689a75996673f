package main

// format is how one storage type lies in a tile of 16 rows; kernels/pack.go has
// the picture. A type in blocks of 32 columns has scales before each block, and one
// in super-blocks a header before every eight of them.
type format struct {
	name   string
	coding *coding
	scale  scale
	min    minimum
}

// scale is the factor of a block's sum.
type scale int

const (
	noScale      scale = iota
	halfScale          // a half before each block
	bfloatScale        // a bfloat16 before each block
	byteScale          // a half in the header times a signed byte before each block
	byteScales         // the same with a byte for each half of the block
	nibbleScales       // the same with the low nibble of a byte for each half
)

// minimum is what a block's numbers begin at: its product with Σx joins the sum.
type minimum int

const (
	noMin      minimum = iota
	halfMin            // a half after the scale, added
	byteMin            // a half in the header times a byte after the scale, taken away
	nibbleMins         // a half in the header times the high nibble of the scales' bytes, taken away
)

var formats = []format{
	{name: "F32", coding: float32s},
	{name: "F16", coding: halves},
	{name: "BF16", coding: bfloats},
	{name: "Q8_0", coding: int8s, scale: halfScale},
	{name: "Q4_0", coding: pairs(from(-8)), scale: halfScale},
	{name: "Q4_1", coding: pairs(nil), scale: halfScale, min: halfMin},
	{name: "Q5_0", coding: fives(-16), scale: halfScale},
	{name: "Q5_1", coding: fives(0), scale: halfScale, min: halfMin},
	{name: "IQ4_NL", coding: iq4, scale: halfScale},
	{name: "MXFP4", coding: e2m1, scale: bfloatScale},
	{name: "Q2_K", coding: twos, scale: nibbleScales, min: nibbleMins},
	{name: "Q3_K", coding: threes, scale: byteScales},
	{name: "Q4_K", coding: pairs(nil), scale: byteScale, min: byteMin},
	{name: "Q5_K", coding: fives(0), scale: byteScale, min: byteMin},
	{name: "Q6_K", coding: sixes, scale: byteScales},
	{name: "IQ4_XS", coding: iq4, scale: byteScale},
}

func (f format) scaled() bool { return f.scale != noScale }

func (f format) super() bool { return f.scale >= byteScale }

// headerBytes is the size of a super-block's header, over 16 rows.
func (f format) headerBytes() int {
	if f.min == noMin {
		return 32
	}
	return 64
}

// scaleBytes is the size of what stands before a block's elements, over 16 rows.
func (f format) scaleBytes() int {
	n := [...]int{noScale: 0, halfScale: 32, bfloatScale: 32, byteScale: 16, byteScales: 32, nibbleScales: 32}[f.scale]
	return n + [...]int{noMin: 0, halfMin: 32, byteMin: 16, nibbleMins: 0}[f.min]
}

// blockBytes is the size of a block with its scales, over 16 rows.
func (f format) blockBytes() int { return f.scaleBytes() + f.coding.bytes*f.coding.turns }

// scaleOf puts the scales of half h of the block into the weights' registers.
func (t *tile) scaleOf(h int) {
	switch t.f.scale {
	case halfScale:
		t.halves(weight, wBlock, 0)
	case bfloatScale:
		t.bfloats(weight, wBlock, 0)
	case byteScale:
		t.headTimes(0, func(v vreg) { t.load(v, true, wBlock, 0) })
	case byteScales:
		t.headTimes(0, func(v vreg) { t.load(v, true, wBlock, 16*h) })
	case nibbleScales:
		t.headTimes(0, func(v vreg) {
			t.load(v, true, wBlock, 16*h)
			t.op("VSHL $4, %v.B16, %v.B16", v, v)
			t.op("VUSHR $4, %v.B16, %v.B16", v, v)
		})
	}
}

// halves makes the numbers of 16 halves in v to v+3.
func (t *tile) halves(v vreg, at gpr, disp int) {
	t.load(v, true, at, disp)
	t.load(v+2, true, at, disp+16)
	for _, v := range []vreg{v, v + 2} {
		t.two("fcvtl2", v+1, v)
		t.two("fcvtl", v, v)
	}
}

// bfloats makes the numbers of 16 bfloat16 in v to v+3.
func (t *tile) bfloats(v vreg, at gpr, disp int) {
	t.load(v, true, at, disp)
	t.load(v+2, true, at, disp+16)
	for _, v := range []vreg{v, v + 2} {
		t.shll16(v+1, v, true)
		t.shll16(v, v, false)
	}
}

// widen makes the numbers of the 16 signed bytes of v in v to v+3.
func (t *tile) widen(v vreg) {
	t.two("sxtl2.8h", v+2, v)
	t.two("sxtl.8h", v, v)
	for _, v := range []vreg{v, v + 2} {
		t.two("sxtl2", v+1, v)
		t.two("sxtl", v, v)
	}
	for i := range vreg(4) {
		t.two("scvtf", v+i, v+i)
	}
}

// headTimes makes the products of halves in the header and of 16 signed bytes. The
// scales and minima of K-quants that have no sign are under 64.
func (t *tile) headTimes(disp int, read func(v vreg)) {
	read(xAt)
	t.widen(xAt)
	t.halves(weight, head, disp)
	for v := range vreg(4) {
		t.three("fmul", weight+v, weight+v, xAt+v)
	}
}

// addMinimum adds the minima times the sums of the block's part of x, which the
// K-quants take away. The accumulators are free by now.
func (t *tile) addMinimum() {
	switch t.f.min {
	case halfMin:
		t.sumX(0, 32)
		t.halves(weight, wBlock, 32)
		t.joinMinimum("fmla")
	case byteMin:
		t.sumX(0, 32)
		t.headTimes(32, func(v vreg) { t.load(v, true, wBlock, 16) })
		t.joinMinimum("fmls")
	case nibbleMins:
		for h := range 2 {
			t.sumX(16*h, 16)
			t.headTimes(32, func(v vreg) {
				t.load(v, true, wBlock, 16*h)
				t.op("VUSHR $4, %v.B16, %v.B16", v, v)
			})
			t.joinMinimum("fmls")
		}
	}
}

func (t *tile) joinMinimum(name string) {
	for i := range t.rows {
		for v := range 4 {
			t.join(v, i, func(sum vreg) { t.three(name, sum, vreg(i), weight+vreg(v)) })
		}
	}
}

// sumX fills vector i with the sum of n numbers of row i of x, from the block's
// column first on; x is behind the block.
func (t *tile) sumX(first, n int) {
	const parts vreg = 8
	for i := range t.rows {
		for j := range n / 4 {
			t.load(parts+vreg(j), true, xFirst+gpr(i), 4*first-128+16*j)
		}
		for width := n / 8; width > 0; width /= 2 {
			for j := range vreg(width) {
				t.three("fadd", parts+j, parts+j, parts+j+vreg(width))
			}
		}
		t.three("faddp", parts, parts, parts)
		t.three("faddp", vreg(i), parts, parts)
	}
}
