package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// wordDots multiplies words and adds the products in 32 bits: for elements of 8 bits, where not
// even the sum of two products fits 16. A word of a row has its upper byte too. A pass is
// half a block of one vector of weight rows. The frame has the words of each row.
type wordDots struct {
	*rowDots
	elements [4][2]reg.VecVirtual // of each group of the pass: rows 0, 1, 4, 5 and the others
}

const (
	frameWords = frameRest
	wordsFrame = frameWords + passingRows*rowWords
	rowWords   = 2 * 32
)

func (t *wordDots) blocks(name string, left reg.GPVirtual) {
	t.eachBlock(name, left, func() {
		for v := range 2 {
			for h := range 2 {
				for i := range t.elements {
					t.unpack(v, 4*h+i, &t.elements[i])
				}
				if h == 1 {
					t.factor[v] = YMM()
					t.scaleOf(v, 0, t.factor[v])
				}
				t.eachRow(name+[]string{"_first", "_second", "_third", "_fourth"}[2*v+h], func() {
					if v == 0 && h == 0 {
						t.makeWords()
					}
					t.addProducts(v, h)
				})
			}
		}
	})
}

// unpack makes words of a group's bytes, without their offset.
func (t *wordDots) unpack(v, g int, out *[2]reg.VecVirtual) {
	bytes := t.groupBytes(v, g)
	VPXOR(t.g.bytesOf(1<<t.coding.offset), bytes, bytes)
	out[0], out[1] = YMM(), YMM()
	VPUNPCKLBW(bytes, bytes, out[0])
	VPUNPCKHBW(bytes, bytes, out[1])
	for _, words := range out {
		VPSRAW(U8(8), words, words)
	}
}

// wordsAt are the row's words in the frame, from a group on.
func (t *wordDots) wordsAt(g int) Mem {
	return Mem{Base: t.sums, Disp: frameWords + 8*g}
}

// makeWords makes words of the row's bytes.
func (t *wordDots) makeWords() {
	for h := range 2 {
		words := YMM()
		VPMOVSXBW(t.activation(0, 4*h), words)
		VMOVDQU(words, t.wordsAt(4*h))
	}
	group, low, top := GP64(), XMM(), XMM()
	MOVL(t.activation(0, blockGroup), group.As32())
	SHRL(U8(2), group.As32())
	VPMOVSXBW(Mem{Base: t.x, Index: group, Scale: 1}, low)
	VPMOVSXBW(t.activation(0, blockTop), top)
	VPSLLW(U8(8), top, top)
	VPADDW(top, low, low)
	m := t.wordsAt(0)
	m.Index, m.Scale = group, 2
	VMOVQ(low, m)
}

// addProducts adds the products of half h of the row with vector v to its sum.
func (t *wordDots) addProducts(v, h int) {
	var sums [2]reg.VecVirtual
	for i, words := range t.elements {
		x := YMM()
		VPBROADCASTQ(t.wordsAt(4*h+i), x)
		for k, w := range words {
			out := YMM()
			VPMADDWD(x, w, out)
			sums[k] = plus(VPADDD, out, sums[k])
		}
	}
	for k, n := range sums {
		if h == 0 {
			VMOVDQU(n, t.leftAt(k))
		} else {
			VPADDD(t.leftAt(k), n, n)
		}
	}
	if h == 0 {
		return
	}
	n, odd := YMM(), YMM() // a row has two neighbours
	VSHUFPS(U8(0x88), sums[1], sums[0], n)
	VSHUFPS(U8(0xdd), sums[1], sums[0], odd)
	VPADDD(odd, n, n)
	t.scaleInts(v, t.scaleOfRow(), n)
	VMOVUPS(n, t.sumAt(v))
}
