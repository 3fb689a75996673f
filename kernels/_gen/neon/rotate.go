package main

func (a *asm) rotations() {
	a.rotate("RotateHalves", "RotateHalves turns numbers i and pairs+i of each head by the cos and sin at i and pairs+i of angles.", false)
	a.rotate("RotateNeighbours", "RotateNeighbours turns numbers 2i and 2i+1 of each head by the cos and sin at 2i and 2i+1 of angles.", true)
}

const (
	turnX, turnHeads, turnStep, turnPairs, turnAngles gpr = 0, 1, 2, 3, 5
	turnApart, turnHead, turnLeft, turnOther          gpr = 6, 7, 8, 9
)

// rotate loads the angles of four pairs, or of one, once for all heads. Products are
// rounded before they are added, as ref's are.
func (a *asm) rotate(name, doc string, neighbours bool) {
	a.function(name, "x *float32, heads int, headDim int, angles *float32, pairs int", "", doc, 0, opsPool)
	for i, name := range []string{"x", "heads", "headDim", "pairs"} {
		a.param(name, gpr(i))
	}
	a.param("angles", turnAngles)
	a.op("LSL $2, %v", turnStep)
	a.op("LSL $2, %v, %v", turnPairs, turnApart)
	pointers := []gpr{turnX, turnAngles}
	if neighbours {
		pointers = append(pointers, pointers...) // they move on by pairs
	}
	a.each(turnPairs, pointers, func(whole bool) {
		const first, second, cos, sin, product, other vreg = 0, 1, 2, 3, 4, 5
		heads := map[bool]string{true: "heads", false: "heads_one"}[whole]
		a.movePairs(whole, neighbours, false, turnAngles, cos, sin)
		a.op("MOVD %v, %v", turnX, turnHead)
		a.op("MOVD %v, %v", turnHeads, turnLeft)
		a.label(heads)
		a.movePairs(whole, neighbours, false, turnHead, first, second)
		a.three("fmul", product, second, sin)
		a.three("fmul", other, first, sin)
		a.three("fmul", first, first, cos)
		a.three("fmul", second, second, cos)
		a.three("fsub", first, first, product)
		a.three("fadd", second, other, second)
		a.movePairs(whole, neighbours, true, turnHead, first, second)
		a.op("ADD %v, %v", turnStep, turnHead)
		a.op("SUBS $1, %v", turnLeft)
		a.op("BNE %s", heads)
	})
	a.ret()
}

// movePairs loads or stores the first and the second numbers of four pairs, or of one.
func (a *asm) movePairs(whole, neighbours, store bool, at gpr, first, second vreg) {
	move := a.load
	if store {
		move = a.store
	}
	switch {
	case !neighbours:
		a.op("ADD %v, %v, %v", turnApart, at, turnOther)
		move(first, whole, at, 0)
		move(second, whole, turnOther, 0)
	case !whole:
		move(first, false, at, 0)
		move(second, false, at, 4)
	case store:
		a.op("VST2 [%v.S4, %v.S4], (%v)", first, second, at)
	default:
		a.op("VLD2 (%v), [%v.S4, %v.S4]", at, first, second)
	}
}
