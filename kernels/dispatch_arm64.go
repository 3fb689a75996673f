//go:build arm64 && !purego

package kernels

import "github.com/forebay-io/forebay/kernels/neon"

const purego = false

var neonSet = (&vector{
	name: "neon", lanes: neon.Lanes, rowsMax: neon.RowsMax, scaledRowsMax: neon.RowsMax,
	matMul: map[Type]func(*float32, int, int, *byte, *float32, int, int){
		F32: neon.MatMulF32, F16: neon.MatMulF16, BF16: neon.MatMulBF16, Q8_0: neon.MatMulQ8_0,
		Q4_0: neon.MatMulQ4_0, Q4_1: neon.MatMulQ4_1, Q5_0: neon.MatMulQ5_0, Q5_1: neon.MatMulQ5_1,
		IQ4_NL: neon.MatMulIQ4_NL, MXFP4: neon.MatMulMXFP4, Q2_K: neon.MatMulQ2_K, Q3_K: neon.MatMulQ3_K,
		Q4_K: neon.MatMulQ4_K, Q5_K: neon.MatMulQ5_K, Q6_K: neon.MatMulQ6_K, IQ4_XS: neon.MatMulIQ4_XS,
	},
	siLUMul: neon.SiLUMul, geluMul: neon.GELUMul, clamped: neon.ClampedSiLUMul, softCap: neon.SoftCap,
	rotate: [...]func(*float32, int, int, *float32, int){neon.RotateHalves, neon.RotateNeighbours},
	add:    neon.Add, sumSquares: neon.SumSquares, scaleMul: neon.ScaleMul,
	max: neon.Max, expSum: neon.ExpSum, weigh: neon.Weigh, scale: neon.Scale, cached: neonCached(),
}).set()

// vectorSets: Advanced SIMD is part of every arm64 processor that Go runs on.
func vectorSets() []*Set { return []*Set{neonSet} }
