//go:build arm64 && !purego

package kernels

import "github.com/forebay-io/forebay/kernels/neon"

const purego = false

var neonSet = (&vector{
	name: "neon", lanes: neon.Lanes, rowsMax: neon.RowsMax, products: neonProducts,
	siLUMul: neon.SiLUMul, geluMul: neon.GELUMul, clamped: neon.ClampedSiLUMul, softCap: neon.SoftCap,
	rotate: [...]func(*float32, int, int, *float32, int){neon.RotateHalves, neon.RotateNeighbours},
	add:    neon.Add, sumSquares: neon.SumSquares, scaleMul: neon.ScaleMul,
	max: neon.Max, expSum: neon.ExpSum, weigh: neon.Weigh, scale: neon.Scale, cached: neonCached(),
}).set()

// vectorSets: Advanced SIMD is part of every arm64 processor that Go runs on.
func vectorSets() []*Set { return []*Set{neonSet} }
