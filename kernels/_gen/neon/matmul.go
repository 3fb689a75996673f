package main

import "fmt"

// Registers of MatMul. In vectors: 0–15 accumulators, 16–19 numbers of x, 20–23 a
// column of weights, 24 and 25 temporary, 26–31 the coding's constants.
const (
	wBlock, wElements, wAt            gpr = 0, 1, 2 // a block, its elements, those of a turn
	turnsLeft, blocksLeft, supersLeft gpr = 3, 4, 9
	xFirst                            gpr = 5 // rows of x, to 8
	head                              gpr = 10
	pool                              gpr = 11
	to, stride, rowsLeft              gpr = 12, 13, 14
	s0, s1, s2                        gpr = 15, 19, 20

	xAt, weight, moment, kept vreg = 16, 20, 24, 26
)

const (
	rowsMax = 4  // rows of x that one call takes
	sumsAt  = 16 // where a row's 16 sums lie in the frame, one row behind the other
)

// product is the state of a MatMul body: 16 rows of weights, rows rows of x.
type product struct {
	*asm
	f    weightType
	rows int
	both bool // whether both halves of a block have accumulators at the same time
}

// matMul writes the product of a tile of weight rows with n rows of x.
//
// An output is a sum in the frame. For each block of 32 columns two accumulators begin at 0:
// one takes the columns 0–15 in their order, the other the columns 16–31. Times the scale
// they are added to the sum, the first before the second, and then the product of the
// minimum and the sum of the block's x. Columns after the last whole 32 have an accumulator
// like the first. The order is the same in every shape, which makes the product
// bit-invariant: where registers are short the halves come one after the other, but that
// changes no sum.
func (a *asm) matMul(f weightType) {
	a.function("MatMul"+f.Name, "dst *float32, dstStride int, rows int, w *byte, x *float32, cols int, n int", "",
		"MatMul"+f.Name+" computes dst[i·dstStride+r] for i in [0,n) and r in [0,rows) from the tile at w. 1 ≤ n ≤ RowsMax, 1 ≤ rows ≤ 2·Lanes.",
		sumsAt+64*rowsMax, pool)
	f.coding.loadConstants(a)
	a.param("n", s0)
	for rows := 1; rows < rowsMax; rows++ {
		a.op("CMP $%d, %v", rows, s0)
		a.op("BEQ rows%d", rows)
	}
	for rows := rowsMax; rows >= 1; rows-- {
		a.label(fmt.Sprintf("rows%d", rows))
		t := &product{asm: a, f: f, rows: rows, both: rows <= 2}
		t.begin()
		t.walk()
		if !f.Scaled() {
			t.tail()
		}
		t.end()
	}
}

func (t *product) name(s string) string { return fmt.Sprintf("%s%d", s, t.rows) }

// acc is the accumulator of row i of x and vector v of the weights, in half h.
func (t *product) acc(h, v, i int) vreg {
	if !t.both {
		h = 0
	}
	return vreg(4*(h*t.rows+i) + v)
}

func (t *product) x(h, i int) vreg {
	if !t.both {
		h = 0
	}
	return xAt + vreg(h*t.rows+i)
}

func (t *product) begin() {
	t.param("w", wBlock)
	t.param("x", xFirst)
	t.param("cols", blocksLeft)
	for i := 1; i < t.rows; i++ {
		t.op("ADD %v<<2, %v, %v", blocksLeft, xFirst+gpr(i-1), xFirst+gpr(i))
	}
	t.zero(0)
	for at := range 4 * t.rows {
		t.op("FMOVQ F0, %d(RSP)", sumsAt+16*at)
	}
}

// walk adds up all whole blocks, or all super-blocks of eight.
func (t *product) walk() {
	if t.f.Super() {
		t.op("LSR $8, %v, %v", blocksLeft, supersLeft)
		t.label(t.name("super"))
		t.op("MOVD %v, %v", wBlock, head)
		t.op("ADD $%d, %v", t.f.HeaderBytes(), wBlock)
		t.op("MOVD $8, %v", blocksLeft)
		t.block()
		t.op("SUBS $1, %v", supersLeft)
		t.op("BNE %s", t.name("super"))
		return
	}
	t.op("LSR $5, %v", blocksLeft)
	t.op("CBZ %v, %s", blocksLeft, t.name("blocks_end"))
	t.block()
	t.label(t.name("blocks_end"))
}

// block is the loop over blocks of 32 columns.
func (t *product) block() {
	t.label(t.name("block"))
	t.op("ADD $%d, %v, %v", t.f.ScaleBytes(), wBlock, wElements)
	c := t.f.coding
	step := 16 / c.runs // columns of a run
	for h := range 2 {
		if h == 0 || !t.both {
			t.clear()
		}
		for run := range c.runs {
			if t.both && h == 0 {
				t.columns(step, run*step, 16+run*step)
			} else if !t.both {
				t.columns(step, 16*h+run*step)
			}
		}
		if t.both && h == 0 {
			t.advanceX(64) // over the second half
		}
		t.addHalf(h)
	}
	t.addMinimum()
	t.op("ADD $%d, %v", t.f.blockBytes(), wBlock)
	t.op("SUBS $1, %v", blocksLeft)
	t.op("BNE %s", t.name("block"))
}

// clear zeroes the accumulators.
func (t *product) clear() {
	n := 4 * t.rows
	if t.both {
		n *= 2
	}
	for v := range n {
		t.zero(vreg(v))
	}
}

// columns adds n columns from each of the starts on, four a turn.
func (t *product) columns(n int, starts ...int) {
	c, name := t.f.coding, t.name(fmt.Sprintf("column%d_", starts[0]))
	t.op("ADD $%d, %v, %v", c.place(starts[0]), wElements, wAt)
	t.op("MOVD $%d, %v", n/4, turnsLeft)
	t.label(name)
	for h := range starts {
		for i := range t.rows {
			t.load(t.x(h, i), true, xFirst+gpr(i), 64*h)
		}
	}
	for column := range 4 {
		for h, start := range starts {
			disp := c.place(start) - c.place(starts[0]) + column*c.bytes
			c.unpack(t, disp, start)
			for i := range t.rows {
				for v := range 4 {
					t.fmlaLane(t.acc(h, v, i), weight+vreg(v), t.x(h, i), column)
				}
			}
		}
	}
	t.advanceX(16)
	t.op("ADD $%d, %v", 4*c.bytes, wAt)
	t.op("SUBS $1, %v", turnsLeft)
	t.op("BNE %s", name)
}

func (t *product) advanceX(bytes int) {
	for i := range t.rows {
		t.op("ADD $%d, %v", bytes, xFirst+gpr(i))
	}
}

// join changes the sum of row i and vector v by an instruction on it.
func (t *product) join(v, i int, by func(sum vreg)) {
	at, sum := sumsAt+64*i+16*v, moment+vreg(v%2)
	t.op("FMOVQ %d(RSP), F%d", at, sum)
	by(sum)
	t.op("FMOVQ F%d, %d(RSP)", sum, at)
}

// addHalf adds half h of the block, times its scale, to the sums.
func (t *product) addHalf(h int) {
	if t.f.Scaled() {
		t.scaleOf(h)
	}
	for i := range t.rows {
		for v := range 4 {
			t.join(v, i, func(sum vreg) {
				if t.f.Scaled() {
					t.three("fmla", sum, t.acc(h, v, i), weight+vreg(v))
				} else {
					t.three("fadd", sum, sum, t.acc(h, v, i))
				}
			})
		}
	}
}

// tail adds the columns after the last whole 32.
func (t *product) tail() {
	name := t.name("tail")
	t.param("cols", blocksLeft)
	t.op("AND $31, %v", blocksLeft)
	t.op("CBZ %v, %s_end", blocksLeft, name)
	t.op("MOVD %v, %v", wBlock, wAt)
	t.clear()
	t.label(name)
	t.f.coding.unpack(t, 0, 0)
	for i := range t.rows {
		t.load(t.x(0, i), false, xFirst+gpr(i), 0)
		for v := range 4 {
			t.fmlaLane(t.acc(0, v, i), weight+vreg(v), t.x(0, i), 0)
		}
	}
	t.advanceX(4)
	t.op("ADD $%d, %v", t.f.coding.bytes, wAt)
	t.op("SUBS $1, %v", blocksLeft)
	t.op("BNE %s", name)
	t.addHalf(0)
	t.label(name + "_end")
}

// end stores the sums of the rows of weights that exist.
func (t *product) end() {
	t.param("dst", to)
	t.param("dstStride", stride)
	t.param("rows", rowsLeft)
	t.op("CMP $16, %v", rowsLeft)
	t.op("BNE %s", t.name("some"))
	for i := range t.rows {
		for v := range 4 {
			t.op("FMOVQ %d(RSP), F%d", sumsAt+64*i+16*v, v)
			t.store(vreg(v), true, to, 16*v)
		}
		t.op("ADD %v<<2, %v", stride, to)
	}
	t.ret()
	t.label(t.name("some"))
	for i := range t.rows {
		name := fmt.Sprintf("%s_%d", t.name("store"), i)
		t.op("ADD $%d, RSP, %v", sumsAt+64*i, s0)
		t.op("MOVD %v, %v", to, s1)
		t.op("MOVD %v, %v", rowsLeft, s2)
		t.label(name)
		t.op("FMOVS.P 4(%v), F0", s0)
		t.op("FMOVS.P F0, 4(%v)", s1)
		t.op("SUBS $1, %v", s2)
		t.op("BNE %s", name)
		t.op("ADD %v<<2, %v", stride, to)
	}
	t.ret()
}
