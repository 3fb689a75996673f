package main

import "github.com/forebay-io/forebay/kernels/_gen/format"

// coding is how elements become numbers. A byte has the numbers of one or more columns of a
// row, turns columns apart; a half of a block has one run or two, whose columns lie at the
// same bits of their bytes.
type coding struct {
	bytes int // of a column over 16 rows, or of the columns that share bytes
	turns int // how many of those a block has
	runs  int // of a half: 2 where four columns share bytes
	// constants are in the registers from kept on.
	constants [][16]byte
	// unpack puts the numbers of a column into the weights' registers: of the column disp
	// bytes from the turn's place on, in a run that begins at column start.
	unpack func(t *product, disp, start int)
}

// place is where in a block's elements column start is.
func (c *coding) place(start int) int { return start % c.turns * c.bytes }

func (c *coding) loadConstants(a *asm) {
	for i, k := range c.constants {
		a.constant(kept+vreg(i), k)
	}
}

var (
	float32s = &coding{bytes: 64, turns: 32, runs: 1, unpack: func(t *product, disp, _ int) {
		for v := range 4 {
			t.load(weight+vreg(v), true, wAt, disp+16*v)
		}
	}}
	halves  = &coding{bytes: 32, turns: 32, runs: 1, unpack: func(t *product, disp, _ int) { t.halves(weight, wAt, disp) }}
	bfloats = &coding{bytes: 32, turns: 32, runs: 1, unpack: func(t *product, disp, _ int) { t.bfloats(weight, wAt, disp) }}
	int8s   = &coding{bytes: 16, turns: 32, runs: 1, unpack: func(t *product, disp, _ int) {
		t.load(weight, true, wAt, disp)
		t.widen(weight)
	}}

	iq4  = nibbles(format.IQ4Numbers)
	e2m1 = nibbles(format.DoubledE2M1)
)

// from is the table of the numbers first, first+1, … first+15.
func from(first int) (table []int) {
	for n := range 16 {
		table = append(table, first+n)
	}
	return table
}

func splat(b byte) (c [16]byte) {
	for i := range c {
		c[i] = b
	}
	return c
}

// nibble reads the low nibbles of 16 bytes, or the high ones; register kept holds 15.
func (t *product) nibble(v vreg, disp int, high bool) {
	t.load(v, true, wAt, disp)
	if high {
		t.op("VUSHR $4, %v.B16, %v.B16", v, v)
	} else {
		t.op("VAND %v.B16, %v.B16, %v.B16", kept, v, v)
	}
}

// nibbles is a byte for two columns, j and j+16: its nibbles index the table, or
// without one they are the numbers.
func nibbles(table []int) *coding {
	c := &coding{bytes: 16, turns: 16, runs: 1, constants: [][16]byte{splat(15)}}
	if table != nil {
		var numbers [16]byte
		for i, n := range table {
			numbers[i] = byte(int8(n))
		}
		c.constants = append(c.constants, numbers)
	}
	c.unpack = func(t *product, disp, start int) {
		t.nibble(weight, disp, start >= 16)
		if table != nil {
			t.op("VTBL %v.B16, [%v.B16], %v.B16", weight, kept+1, weight)
		}
		t.widen(weight)
	}
	return c
}

// planeConstants are, for each row, the byte with its bit in the first and in the second of
// two planes, and the bit.
func planeConstants() (first, second, bits [16]byte) {
	for row := range 16 {
		first[row], second[row], bits[row] = byte(row/8), byte(2+row/8), 1<<(row%8)
	}
	return first, second, bits
}

// plane puts the bits of a column, one for each row, into v: all ones where a bit is set. It
// reads the first or the second of the two planes at disp. The constants of planes are in
// kept+1 to kept+3.
func (t *product) plane(v vreg, disp, second int) {
	t.load(v, false, wAt, disp)
	t.op("VTBL %v.B16, [%v.B16], %v.B16", kept+1+vreg(second), v, v)
	t.op("VCMTST %v.B16, %v.B16, %v.B16", kept+3, v, v)
}

// fives is nibbles with a fifth bit in a plane for each column, behind the byte. The bit is
// worth 16. The numbers begin at first, which is 0, or −16: then 16 is subtracted from those
// whose bit is clear.
func fives(first int) *coding {
	one, two, bits := planeConstants()
	c := &coding{bytes: 20, turns: 16, runs: 1, constants: [][16]byte{splat(15), one, two, bits, splat(16)}}
	c.unpack = func(t *product, disp, start int) {
		t.nibble(weight, disp, start >= 16)
		t.plane(moment, disp+16, start/16)
		if first == 0 {
			t.op("VAND %v.B16, %v.B16, %v.B16", kept+4, moment, moment)
			t.op("VADD %v.B16, %v.B16, %v.B16", moment, weight, weight)
		} else {
			t.three("bic", moment, kept+4, moment)
			t.op("VSUB %v.B16, %v.B16, %v.B16", moment, weight, weight)
		}
		t.widen(weight)
	}
	return c
}

// bitPair reads two bits of 16 bytes, those of field i, and moves them up by up bits. mask has
// ones where they are then.
func (t *product) bitPair(v vreg, disp, i, up int, mask vreg) {
	t.load(v, true, wAt, disp)
	switch right := 2*i - up; {
	case right > 0:
		t.op("VUSHR $%d, %v.B16, %v.B16", right, v, v)
	case right < 0:
		t.op("VSHL $%d, %v.B16, %v.B16", -right, v, v)
	}
	t.op("VAND %v.B16, %v.B16, %v.B16", mask, v, v)
}

// twos, threes and sixes have a byte for two bits of four columns, j, j+8, j+16 and
// j+24. threes have a plane for each of the four behind it, whose bit is worth 4, and
// begin at -4; sixes have bytes of nibbles before it, one for the columns j and
// j+16, one for j+8 and j+24, and begin at -32.
var (
	twos = &coding{bytes: 16, turns: 8, runs: 2, constants: [][16]byte{splat(3)}, unpack: func(t *product, disp, start int) {
		t.bitPair(weight, disp, start/8, 0, kept)
		t.widen(weight)
	}}
	threes = func() *coding {
		one, two, bits := planeConstants()
		c := &coding{bytes: 24, turns: 8, runs: 2, constants: [][16]byte{splat(3), one, two, bits, splat(4)}}
		c.unpack = func(t *product, disp, start int) {
			i := start / 8
			t.bitPair(weight, disp, i, 0, kept)
			t.plane(moment, disp+16+i/2*4, i%2)
			t.three("bic", moment, kept+4, moment)
			t.op("VSUB %v.B16, %v.B16, %v.B16", moment, weight, weight)
			t.widen(weight)
		}
		return c
	}()
	sixes = &coding{bytes: 48, turns: 8, runs: 2, constants: [][16]byte{splat(15), splat(0x30), splat(32)}, unpack: func(t *product, disp, start int) {
		i := start / 8
		t.nibble(weight, disp+16*(i%2), i >= 2)
		t.bitPair(moment, disp+32, i, 4, kept+1)
		t.op("VORR %v.B16, %v.B16, %v.B16", moment, weight, weight)
		t.op("VSUB %v.B16, %v.B16, %v.B16", kept+2, weight, weight)
		t.widen(weight)
	}}
)
