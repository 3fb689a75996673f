package kernels

import (
	"slices"
	"time"
)

// This file decides between two ways to multiply many rows that give the same bits.

// withManyRows returns s with other as its Alternative. Both have the same operations and
// bits, and multiply many rows in different ways: s by way, other by otherWay.
func (s *Set) withManyRows(way string, other *Set, otherWay string) *Set {
	with, alternative := *s, *other
	alternative.Name = s.Name
	with.ManyRows, alternative.ManyRows = way, otherWay
	with.Alternative, alternative.Alternative = &alternative, &with
	return &with
}

// Faster returns s or its Alternative, whichever multiplies many rows with weights of type t
// faster. It times both on the caller's thread, for a few milliseconds. It returns s without
// timing if s has no Alternative, or if MatMul rounds nothing for t.
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

// race runs a and b in turns, so that a disturbance of the machine affects both, and returns
// the times of each. The first run of each, with cold caches, does not count.
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

// faster reports whether the median of a is below that of b. Medians ignore the outliers that
// other work on the machine causes.
func faster(a, b []time.Duration) bool { return median(a) < median(b) }

// median returns the middle value, or the lower of the two middle values.
func median(times []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)-1)/2]
}

// trial is a product of pseudo-random numbers, the same in each process.
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

// product returns a function that computes the product with a set and does nothing else.
func (p *trial) product(s *Set) func() {
	dst, m, x := make([]float32, p.n*p.rows), s.Pack(p.t, p.rows, p.cols, p.raw), s.Input(p.x)
	return func() { s.MatMul(dst, p.rows, m, x, p.n, 0, p.rows) }
}
