package kernels

import (
	"slices"
	"time"
)

// This file decides between two ways to multiply many rows that give the same bits.

// withManyRows is s, whose products of many rows are called way, beside other: the same
// operations with the same bits, where those products are called otherWay.
func (s *Set) withManyRows(way string, other *Set, otherWay string) *Set {
	with, alternative := *s, *other
	alternative.Name = s.Name
	with.ManyRows, alternative.ManyRows = way, otherWay
	with.Alternative, alternative.Alternative = &alternative, &with
	return &with
}

// Faster times the products of many rows of s and of its Alternative with weights of type t,
// on the caller's thread, and gives the set whose are faster. It takes a few milliseconds. A
// set without an Alternative, or whose MatMul rounds nothing for t, is given back untimed.
func (s *Set) Faster(t Type) *Set {
	if s.Alternative == nil || s.Round == nil || t.BlockLen() == 1 {
		return s
	}
	const rows, cols, n, turns = 256, 2048, 64, 9
	p := newTrial(t, rows, cols, n)
	own, other := race(turns, p.product(s), p.product(s.Alternative))
	if faster(own, other) {
		return s
	}
	return s.Alternative
}

// race runs a and b by turns, so that what disturbs the machine disturbs both, and gives the
// times of each. What they take the first time, from cold caches, does not count.
func race(turns int, a, b func()) (timesA, timesB []time.Duration) {
	a()
	b()
	for range turns {
		timesA, timesB = append(timesA, timed(a)), append(timesB, timed(b))
	}
	return timesA, timesB
}

func timed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// faster reports whether the median of a is below that of b. A median does not follow the
// outliers of a machine that does other work.
func faster(a, b []time.Duration) bool { return median(a) < median(b) }

// median is the middle one, or of an even number the lower of the middle two.
func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)-1)/2]
}

// trial is a product of numbers that mean nothing, the same in each process.
type trial struct {
	t             Type
	rows, cols, n int
	raw           []byte
	x             []float32
}

func newTrial(t Type, rows, cols, n int) *trial {
	p := &trial{t: t, rows: rows, cols: cols, n: n, raw: make([]byte, rows*t.Bytes(cols)), x: make([]float32, n*cols)}
	state := uint32(1)
	next := func() uint32 { state = state*1664525 + 1013904223; return state >> 16 }
	for i := range p.raw {
		p.raw[i] = byte(next()) &^ 0x40 // no scale is infinite
	}
	for i := range p.x {
		p.x[i] = float32(int(next())-1<<15) * float32(1+next()>>13)
	}
	return p
}

// run computes the product with a set.
func (p *trial) run(s *Set) []float32 {
	dst := make([]float32, p.n*p.rows)
	s.MatMul(dst, p.rows, s.Pack(p.t, p.rows, p.cols, p.raw), s.Input(p.x), p.n, 0, p.rows)
	return dst
}

// product is a function that computes the product with a set, and nothing else.
func (p *trial) product(s *Set) func() {
	dst, m, x := make([]float32, p.n*p.rows), s.Pack(p.t, p.rows, p.cols, p.raw), s.Input(p.x)
	return func() { s.MatMul(dst, p.rows, m, x, p.n, 0, p.rows) }
}
