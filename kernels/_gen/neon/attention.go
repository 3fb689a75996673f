package main

import "fmt"

const (
	attendRows = 4 // rows of queries that share what Dots and Accumulate load

	aOut, aIn, aStep, aStep2 gpr = 0, 1, 2, 3
	aRows                    gpr = 4
	aFrom, aTo, aLeft        gpr = 5, 6, 7
	aAt, aTurns              gpr = 8, 9
	aRow                     gpr = 10 // to 13
	aDst, aStride, aTemp     gpr = 14, 15, 19
	aPool                    gpr = 20
)

// byRows runs body for attendRows rows at a time, and then for the rows that are left.
func (a *asm) byRows(body func(name string, rows int)) {
	a.op("CMP $%d, %v", attendRows, aRows)
	a.op("BLT remainder")
	a.label("whole")
	body("all", attendRows)
	a.op("SUB $%d, %v", attendRows, aRows)
	a.op("CMP $%d, %v", attendRows, aRows)
	a.op("BGE whole")
	a.label("remainder")
	for n := 1; n < attendRows; n++ {
		a.op("CMP $%d, %v", n, aRows)
		a.op("BEQ rows_of%d", n)
	}
	a.ret()
	for n := 1; n < attendRows; n++ {
		a.label(fmt.Sprintf("rows_of%d", n))
		body(fmt.Sprintf("rows%d", n), n)
		a.ret()
	}
}

// prefetchAhead asks for the first lines of the page that the next call reads.
func (a *asm) prefetchAhead() {
	a.param("ahead", aTemp)
	for line := range 8 {
		a.op("PRFM %d(%v), PLDL1KEEP", 64*line, aTemp)
	}
}

// spread sets the addresses of the rows, step bytes apart.
func (a *asm) spread(base, step gpr, rows int) {
	a.op("MOVD %v, %v", base, aRow)
	for i := 1; i < rows; i++ {
		a.op("ADD %v, %v, %v", step, aRow+gpr(i-1), aRow+gpr(i))
	}
}

// skip moves base on by rows steps.
func (a *asm) skip(base, step gpr, rows int) {
	for range rows {
		a.op("ADD %v, %v", step, base)
	}
}

func (a *asm) advanceRows(rows, bytes int) {
	for i := range rows {
		a.op("ADD $%d, %v", bytes, aRow+gpr(i))
	}
}

// walkVectors runs body for counts[0] vectors at a time, then for the smaller
// counts, then for one number at a time. pointers move with it.
func (a *asm) walkVectors(name string, left gpr, counts []int, pointers []gpr, body func(name string, vectors int, whole bool)) {
	pass := func(name string, vectors, numbers int) {
		a.op("CMP $%d, %v", numbers, left)
		a.op("BLT %s_end", name)
		a.label(name)
		body(name, vectors, numbers > 1)
		for _, p := range pointers {
			a.op("ADD $%d, %v", 4*numbers, p)
		}
		a.op("SUB $%d, %v", numbers, left)
		a.op("CMP $%d, %v", numbers, left)
		a.op("BGE %s", name)
		a.label(name + "_end")
	}
	for _, vectors := range counts {
		pass(fmt.Sprintf("%s_vectors%d", name, vectors), vectors, 4*vectors)
	}
	pass(name+"_one", 1, 1)
}

// dots writes Dots. A lane is a position. A score is the sum of two accumulators of its lane,
// which take the columns by turns.
func (a *asm) dots() {
	a.function("Dots", "dst *float32, dstStride int, q *float32, dim int, rows int, k *float32, kStride int, count int, scale float32, ahead *float32", "",
		"Dots computes dst[i·dstStride+t] = scale·Σ_d q[i·dim+d]·k[d·kStride+t] for i in [0,rows) and t in [0,count). It prefetches at ahead.", 0, aPool)
	a.prefetchAhead()
	a.param("dst", aOut)
	a.param("q", aIn)
	a.param("kStride", aStep)
	a.param("dim", aStep2)
	a.param("dstStride", aStride)
	a.param("rows", aRows)
	a.splat("scale", 31)
	for _, step := range []gpr{aStep, aStep2, aStride} {
		a.op("LSL $2, %v", step)
	}
	a.byRows(func(name string, rows int) {
		a.param("k", aFrom)
		a.param("count", aLeft)
		a.op("MOVD %v, %v", aOut, aTo)
		counts := []int{4, 1}
		if rows > 2 {
			counts = []int{2, 1}
		}
		a.walkVectors(name, aLeft, counts, []gpr{aFrom, aTo}, func(name string, vectors int, whole bool) {
			a.scores(name, rows, vectors, whole)
		})
		a.skip(aOut, aStride, rows)
		a.skip(aIn, aStep2, rows)
	})
}

// scores computes the scores of some vectors of positions, or of one position.
func (a *asm) scores(name string, rows, vectors int, whole bool) {
	const keys, queries vreg = 16, 20
	acc := func(turn, v, i int) vreg { return vreg((turn*vectors+v)*rows + i) }
	for v := range 2 * vectors * rows {
		a.zero(vreg(v))
	}
	a.spread(aIn, aStep2, rows)
	a.op("MOVD %v, %v", aFrom, aAt)
	column := func(lane, turn int) {
		for v := range vectors {
			a.load(keys+vreg(v), whole, aAt, 16*v)
		}
		a.op("ADD %v, %v", aStep, aAt)
		for i := range rows {
			for v := range vectors {
				a.fmlaLane(acc(turn, v, i), keys+vreg(v), queries+vreg(i), lane)
			}
		}
	}
	read := func(whole bool) {
		for i := range rows {
			a.load(queries+vreg(i), whole, aRow+gpr(i), 0)
		}
	}
	a.param("dim", aTurns)
	a.op("SUBS $4, %v", aTurns)
	a.op("BLT %s_columns_rest", name)
	a.label(name + "_columns")
	read(true)
	for lane := range 4 {
		column(lane, lane%2)
	}
	a.advanceRows(rows, 16)
	a.op("SUBS $4, %v", aTurns)
	a.op("BGE %s_columns", name)
	a.label(name + "_columns_rest")
	a.op("ADD $4, %v", aTurns)
	for turn := range 3 {
		a.op("CBZ %v, %s_sum", aTurns, name)
		read(false)
		column(0, turn%2)
		a.advanceRows(rows, 4)
		a.op("SUB $1, %v", aTurns)
	}
	a.label(name + "_sum")
	a.op("MOVD %v, %v", aTo, aDst)
	for i := range rows {
		for v := range vectors {
			sum := acc(0, v, i)
			a.three("fadd", sum, sum, acc(1, v, i))
			a.three("fmul", sum, sum, 31)
			a.store(sum, whole, aDst, 16*v)
		}
		a.op("ADD %v, %v", aStride, aDst)
	}
}

// accumulate writes Accumulate. An output is one accumulator, in the order of t. It lies in out
// between calls, so the cut of the positions into pages leaves no trace.
func (a *asm) accumulate() {
	a.function("Accumulate", "out *float32, dim int, rows int, v *float32, p *float32, pStride int, count int, ahead *float32", "",
		"Accumulate computes out[i·dim+d] += Σ_t p[i·pStride+t]·v[t·dim+d] over t in [0,count), in the order of t, for i in [0,rows). 1 ≤ count. It prefetches at ahead.", 0, aPool)
	a.prefetchAhead()
	a.param("out", aOut)
	a.param("p", aIn)
	a.param("dim", aStep)
	a.param("pStride", aStride)
	a.param("rows", aRows)
	a.op("LSL $2, %v", aStep)
	a.op("LSL $2, %v", aStride)
	a.byRows(func(name string, rows int) {
		a.param("v", aFrom)
		a.param("dim", aLeft)
		a.op("MOVD %v, %v", aOut, aTo)
		counts := []int{4, 1}
		if rows <= 2 {
			counts = []int{8, 4, 1}
		}
		a.walkVectors(name, aLeft, counts, []gpr{aFrom, aTo}, func(name string, vectors int, whole bool) {
			a.positions(name, rows, vectors, whole)
		})
		a.skip(aOut, aStep, rows)
		a.skip(aIn, aStride, rows)
	})
}

// positions adds all positions to some vectors of out, or to one number.
func (a *asm) positions(name string, rows, vectors int, whole bool) {
	const value, weights vreg = 16, 20
	acc := func(v, i int) vreg { return vreg(i*vectors + v) }
	outputs := func(move func(v vreg, whole bool, at gpr, disp int)) {
		a.op("MOVD %v, %v", aTo, aDst)
		for i := range rows {
			for v := range vectors {
				move(acc(v, i), whole, aDst, 16*v)
			}
			a.op("ADD %v, %v", aStep, aDst)
		}
	}
	outputs(a.load)
	a.spread(aIn, aStride, rows)
	a.op("MOVD %v, %v", aFrom, aAt)
	a.param("count", aTurns)
	a.label(name + "_position")
	for i := range rows {
		a.load(weights+vreg(i), false, aRow+gpr(i), 0)
	}
	for v := range vectors {
		at := value + vreg(v%4)
		a.load(at, whole, aAt, 16*v)
		for i := range rows {
			a.fmlaLane(acc(v, i), at, weights+vreg(i), 0)
		}
	}
	a.advanceRows(rows, 4)
	a.op("ADD %v, %v", aStep, aAt)
	a.op("SUBS $1, %v", aTurns)
	a.op("BNE %s_position", name)
	outputs(a.store)
}
