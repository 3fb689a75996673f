package main

import (
	"math"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// coding is how elements become numbers. One turn of the loop takes a few
// columns, counted from the turn's own: turn u of a block has the columns u+columns[i].
type coding struct {
	columns []int
	elem    int // bytes of an element that has a place of its own; then load reads a column
	load    func(m Mem, v reg.VecVirtual)
	bytes   int // of a turn over 16 rows, where elements share bytes; then unpack reads
	// unpack puts the numbers of the turn's column i, for weight vector v, into out.
	unpack func(t *tile, disp, i, v int, out reg.VecVirtual)
	tables [][]int // of 16 numbers each; AVX-512 keeps them in registers
	plane  bool    // a bit of each number is in a plane
}

// keeps reports whether registers are left for what the columns of a turn share.
func (t *tile) keeps() bool { return t.rows == 1 || t.g.wide && t.rows == 2 }

var (
	float32s = &coding{elem: 4, columns: []int{0, 16}, load: func(m Mem, v reg.VecVirtual) { VMOVUPS(m, v) }}
	halves   = &coding{elem: 2, columns: []int{0, 16}, load: func(m Mem, v reg.VecVirtual) { VCVTPH2PS(m, v) }}
	bfloats  = &coding{elem: 2, columns: []int{0, 16}, load: loadBFloat}
	int8s    = &coding{elem: 1, columns: []int{0, 16}, load: func(m Mem, v reg.VecVirtual) {
		VPMOVSXBD(m, v)
		VCVTDQ2PS(v, v)
	}}

	nibbles8 = pairs(from(-8))
	nibbles0 = pairs(from(0))
	iq4      = pairs(iq4Numbers)
	e2m1     = pairs(e2m1Numbers)

	fives16 = withPlane(pairs(from(-16)), 16, 16)
	fives0  = withPlane(pairs(from(0)), 16, 16)
	twos    = fours(0, 0)
	threes  = withPlane(fours(-4, 0), 16, 4)
	sixes   = fours(-32, 32)

	iq4Numbers  = []int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	e2m1Numbers = []int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12} // doubled
)

func loadBFloat(m Mem, v reg.VecVirtual) {
	VPMOVZXWD(m, v)
	VPSLLD(U8(16), v, v)
}

// from is the table of the numbers first, first+1, … first+15.
func from(first int) (table []int) {
	for n := range 16 {
		table = append(table, first+n)
	}
	return table
}

// isLinear reports whether a table is one of from's.
func isLinear(table []int) bool { return slices.Equal(table, from(table[0])) }

// pairs is a byte for two columns, j and j+16: its nibbles index the table.
func pairs(table []int) *coding {
	c := &coding{columns: []int{0, 16}, bytes: 16, tables: [][]int{table}}
	c.unpack = func(t *tile, disp, i, v int, out reg.VecVirtual) {
		m := t.weights(v, disp, 1)
		switch {
		case !t.g.wide && !isLinear(table):
			t.lookUpBytes(disp, i, v, table, out)
		case t.g.wide || t.rows == 1: // the byte stays in a register for the second column
			t.lookUp(t.keep(v, 0, m, i, 4), i, table, out)
		default:
			VPMOVZXBD(m, out)
			if i == 1 {
				VPSRLD(U8(4), out, out)
			}
			t.lookUp(out, i, table, out)
		}
	}
	return c
}

// fours is a byte for four columns, j, j+8, j+16 and j+24, two bits of each: q. Its
// numbers are first+q, or, where nibbles bytes of nibbles come before it, for the
// columns (j, j+16) and (j+8, j+24), first+16·q+nibble.
func fours(first, nibbles int) *coding {
	high := make([]int, 16)
	for n := range high {
		high[n] = first + n&3
		if nibbles > 0 {
			high[n] = first + n&3<<4
		}
	}
	c := &coding{columns: []int{0, 8, 16, 24}, bytes: nibbles + 16, tables: [][]int{high}}
	if nibbles > 0 {
		c.tables = append(c.tables, from(0))
	}
	c.unpack = func(t *tile, disp, i, v int, out reg.VecVirtual) {
		two := t.field(v, 0, t.weights(v, disp+nibbles, 1), i, 2)
		if t.g.wide {
			VPERMPS(t.table(high), two, out)
		} else {
			VPAND(t.g.bits(3), two, out)
		}
		if nibbles > 0 {
			four, low := t.field(v, 1+i%2, t.weights(v, disp+16*(i%2), 1), i/2, 4), t.g.vec()
			if t.g.wide {
				VPERMPS(t.table(from(0)), four, low)
				VADDPS(low, out, out)
				return
			}
			VPAND(t.g.bits(15), four, low)
			VPSLLD(U8(4), out, out)
			VPADDD(low, out, out)
		}
		if !t.g.wide {
			t.centre(out, first)
		}
	}
	return c
}

// field has field i of the bytes at m in its lowest bits; each is bits wide.
func (t *tile) field(v, place int, m Mem, i, bits int) reg.VecVirtual {
	if t.keeps() {
		return t.keep(v, place, m, i, bits)
	}
	bytes := t.g.vec()
	VPMOVZXBD(m, bytes)
	if i > 0 {
		VPSRLD(U8(bits*i), bytes, bytes)
	}
	return bytes
}

// keep is field with bytes that stay in a register from field 0 on and move on.
func (t *tile) keep(v, place int, m Mem, i, bits int) reg.VecVirtual {
	bytes := &t.bytes[v][place]
	if i == 0 {
		*bytes = t.g.vec()
		VPMOVZXBD(m, *bytes)
	} else {
		VPSRLD(U8(bits), *bytes, *bytes)
	}
	return *bytes
}

// withPlane adds a bit for each column after what c has: 2 bytes over 16 rows for
// each column of a turn, in their order. Where it is set, worth joins the number.
func withPlane(c *coding, at, worth int) *coding {
	plane, plain := *c, c.unpack
	plane.bytes, plane.plane = at+2*len(c.columns), true
	plane.unpack = func(t *tile, disp, i, v int, out reg.VecVirtual) {
		plain(t, disp, i, v, out)
		if t.g.wide {
			VADDPS(t.g.num(float64(worth)), out, t.planeMask(v, t.weights(v, disp+at+2*i, 0), i), out)
			return
		}
		set := t.planeSet(v, t.weights(0, disp+at+2*i, 0), i)
		VPAND(t.g.num(float64(worth)), set, set)
		VADDPS(set, out, out)
	}
	return &plane
}

// planeMask is the plane of column i, which is at m. Two of them are tested in one
// register where there are enough, for a load into a mask is slow.
func (t *tile) planeMask(v int, m Mem, i int) reg.OpmaskVirtual {
	k := K()
	if !t.keeps() {
		KMOVW(m, k)
		return k
	}
	if i%2 == 0 {
		t.planes[v] = t.g.vec()
		VPBROADCASTD(m, t.planes[v])
	}
	VPTESTMD(t.tables[planeNames[i%2]], t.planes[v], k)
	return k
}

// planeSet is planeMask for AVX2: all ones where the bit is set. The planes of two
// columns are moved so that the second one's bits are signs, and the first one's 16 below.
func (t *tile) planeSet(v int, m Mem, i int) reg.VecVirtual {
	set := t.g.vec()
	if !t.keeps() {
		VPBROADCASTW(m, set)
		VPAND(t.g.planeTable(v), set, set)
		VPCMPEQD(t.g.planeTable(v), set, set)
		return set
	}
	if i%2 == 1 {
		VPSRAD(U8(31), t.planes[v], set)
		return set
	}
	moves := make([]uint32, t.g.lanes)
	for lane := range moves {
		moves[lane] = uint32(15 - lane - v*t.g.lanes)
	}
	t.planes[v] = t.g.vec()
	VPBROADCASTD(m, t.planes[v])
	VPSLLVD(table([2]string{"move0", "move1"}[v], moves...), t.planes[v], t.planes[v])
	VPSLLD(U8(16), t.planes[v], set)
	VPSRAD(U8(31), set, set)
	return set
}

var planeNames = [2]string{"plane0", "plane1"}

// planeTable is, for each lane, its bit among the second lanes bits, or the first:
// of AVX-512's two planes, or in AVX2 of the two vectors that share one.
func (g *isa) planeTable(second int) Mem {
	words := make([]uint32, g.lanes)
	for lane := range words {
		words[lane] = 1 << (lane + second*g.lanes)
	}
	return table(planeNames[second], words...)
}

// loadTables puts the coding's tables into registers, where there are enough.
func (t *tile) loadTables() {
	if !t.g.wide {
		return
	}
	if t.f.coding.plane && t.keeps() {
		for i, name := range planeNames {
			t.tables[name] = t.g.vec()
			VMOVUPS(t.g.planeTable(i), t.tables[name])
		}
	}
	for _, numbers := range t.f.coding.tables {
		var words []uint32
		for _, n := range numbers {
			words = append(words, math.Float32bits(float32(n)))
		}
		v := t.g.vec()
		VMOVUPS(table(tableName(numbers), words...), v)
		t.tables[tableName(numbers)] = v
	}
}

func (t *tile) table(numbers []int) reg.VecVirtual { return t.tables[tableName(numbers)] }

func tableName(numbers []int) string {
	name := "t"
	for _, n := range numbers {
		name += string(rune('a'+(n+128)/16)) + string(rune('a'+(n+128)%16))
	}
	return name
}

// lookUp makes the table's number of the low nibble of n. The high nibble of a
// byte that was shifted is clear.
func (t *tile) lookUp(n reg.VecVirtual, i int, numbers []int, out reg.VecVirtual) {
	if t.g.wide { // VPERMPS looks at the low four bits only
		VPERMPS(t.table(numbers), n, out)
		return
	}
	if i == 0 {
		VPAND(t.g.bits(15), n, out)
		n = out
	}
	if n != out {
		VMOVDQU(n, out)
	}
	t.centre(out, numbers[0])
}

// centre makes the number n+first of the integer n.
func (t *tile) centre(n reg.VecVirtual, first int) {
	if first != 0 {
		VPADDD(t.g.bits(uint32(int32(first))), n, n)
	}
	VCVTDQ2PS(n, n)
}

// lookUpBytes is lookUp for AVX2 and any table: it looks up the bytes of 16 rows
// for the first vector, and widens half of them for each.
func (t *tile) lookUpBytes(disp, i, v int, numbers []int, out reg.VecVirtual) {
	if v == 0 {
		lookup := t.g.vec()
		t.looked = t.g.vec()
		n := t.looked.AsX()
		VMOVDQU(t.weights(0, disp, 1), n)
		if i == 1 {
			VPSRLW(U8(4), n, n)
		}
		VPAND(t.g.bits(0x0f0f0f0f), n, n)
		VMOVDQU(byteTable(numbers), lookup.AsX())
		VPSHUFB(n, lookup.AsX(), n)
		VPMOVSXBD(n, out)
	} else {
		VPSRLDQ(U8(8), t.looked.AsX(), out.AsX())
		VPMOVSXBD(out.AsX(), out)
	}
	VCVTDQ2PS(out, out)
}

func byteTable(numbers []int) Mem {
	words := make([]uint32, 4)
	for i, n := range numbers {
		words[i/4] |= uint32(uint8(n)) << (i % 4 * 8)
	}
	return table("b"+tableName(numbers), words...)
}
