package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// activations is where a product reads up to six rows of activations, of numbers or of blocks.
type activations struct {
	rows  int
	x, x3 reg.GPVirtual // rows 0–2 from x on, 3–5 from x3 on
	step  reg.GPVirtual // bytes from a row to the next

	sixteen *sixteenRows // in AMX, where rows are 16
}

// fourthRow finds rows 3–5.
func (a *activations) fourthRow() {
	if a.rows > 3 {
		a.x3 = GP64()
		LEAQ(Mem{Base: a.x, Index: a.step, Scale: 2}, a.x3)
		ADDQ(a.step, a.x3)
	}
}

// activation is the address of a word of row i.
func (a *activations) activation(i, word int) Mem {
	if a.sixteen != nil {
		return a.sixteen.row(a.x, i, 4*word)
	}
	m := Mem{Base: a.x, Index: a.step, Scale: uint8(i % 3), Disp: 4 * word}
	if i >= 3 {
		m.Base = a.x3
	}
	if i%3 == 0 {
		m.Index, m.Scale = nil, 0
	}
	return m
}

// advance moves on by that many words.
func (a *activations) advance(words int) {
	ADDQ(I32(4*words), a.x)
	if a.rows > 3 {
		ADDQ(I32(4*words), a.x3)
	}
}
