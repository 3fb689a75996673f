//go:build amd64 && !purego

package kernels

import (
	"math"
	"sync"

	"golang.org/x/sys/cpu"

	"github.com/forebay-io/forebay/kernels/avx2"
	"github.com/forebay-io/forebay/kernels/avx2int8"
	"github.com/forebay-io/forebay/kernels/avx512"
	"github.com/forebay-io/forebay/kernels/avx512amx"
	"github.com/forebay-io/forebay/kernels/avx512bf16"
	"github.com/forebay-io/forebay/kernels/avx512vnni"
)

const purego = false

// The dispatch table. Package cpu reports a feature only where the operating
// system saves its registers.
var (
	avx2Set = (&vector{
		name: "avx2", lanes: avx2.Lanes, rowsMax: avx2.RowsMax, scaledRowsMax: avx2.ScaledRowsMax,
		matMul: map[Type]func(*float32, int, int, *byte, *float32, int, int){
			F32: avx2.MatMulF32, F16: avx2.MatMulF16, BF16: avx2.MatMulBF16, Q8_0: avx2.MatMulQ8_0,
			Q4_0: avx2.MatMulQ4_0, Q4_1: avx2.MatMulQ4_1, Q5_0: avx2.MatMulQ5_0, Q5_1: avx2.MatMulQ5_1,
			IQ4_NL: avx2.MatMulIQ4_NL, MXFP4: avx2.MatMulMXFP4, Q2_K: avx2.MatMulQ2_K, Q3_K: avx2.MatMulQ3_K,
			Q4_K: avx2.MatMulQ4_K, Q5_K: avx2.MatMulQ5_K, Q6_K: avx2.MatMulQ6_K, IQ4_XS: avx2.MatMulIQ4_XS,
		},
		siLUMul: avx2.SiLUMul, geluMul: avx2.GELUMul, clamped: avx2.ClampedSiLUMul, softCap: avx2.SoftCap,
		rotate: [...]func(*float32, int, int, *float32, int){avx2.RotateHalves, avx2.RotateNeighbours},
		add:    avx2.Add, sumSquares: avx2.SumSquares, scaleMul: avx2.ScaleMul,
		max: avx2.Max, expSum: avx2.ExpSum, weigh: avx2.Weigh, scale: avx2.Scale,
		cached: [...]cached{
			KVF32: {avx2.DotsF32, avx2.AccumulateF32}, KVF16: {avx2.DotsF16, avx2.AccumulateF16}, KVInt8: {avx2.DotsInt8, avx2.AccumulateInt8},
		},
		placeHalves: avx2.PlaceHalves, placeBytes: avx2.PlaceBytes, absMax: avx2.AbsMax,
	}).set()

	avx2int8Set = avx2Set.withDots(&dots{
		name: "avx2int8", lanes: avx2int8.Lanes, rowsMax: avx2int8.RowsMax,
		matMul: map[Type]func(*float32, int, int, *byte, *byte, int, int, int){
			Q8_0: avx2int8.MatMulQ8_0, Q4_0: avx2int8.MatMulQ4_0, Q4_1: avx2int8.MatMulQ4_1, Q5_0: avx2int8.MatMulQ5_0, Q5_1: avx2int8.MatMulQ5_1,
			IQ4_NL: avx2int8.MatMulIQ4_NL, MXFP4: avx2int8.MatMulMXFP4, Q2_K: avx2int8.MatMulQ2_K, Q3_K: avx2int8.MatMulQ3_K,
			Q4_K: avx2int8.MatMulQ4_K, Q5_K: avx2int8.MatMulQ5_K, Q6_K: avx2int8.MatMulQ6_K, IQ4_XS: avx2int8.MatMulIQ4_XS,
		},
		round: avx2int8.Round,
	})

	avx512Loops = &vector{
		name: "avx512", lanes: avx512.Lanes, rowsMax: avx512.RowsMax, scaledRowsMax: avx512.ScaledRowsMax,
		matMul: map[Type]func(*float32, int, int, *byte, *float32, int, int){
			F32: avx512.MatMulF32, F16: avx512.MatMulF16, BF16: avx512.MatMulBF16, Q8_0: avx512.MatMulQ8_0,
			Q4_0: avx512.MatMulQ4_0, Q4_1: avx512.MatMulQ4_1, Q5_0: avx512.MatMulQ5_0, Q5_1: avx512.MatMulQ5_1,
			IQ4_NL: avx512.MatMulIQ4_NL, MXFP4: avx512.MatMulMXFP4, Q2_K: avx512.MatMulQ2_K, Q3_K: avx512.MatMulQ3_K,
			Q4_K: avx512.MatMulQ4_K, Q5_K: avx512.MatMulQ5_K, Q6_K: avx512.MatMulQ6_K, IQ4_XS: avx512.MatMulIQ4_XS,
		},
		siLUMul: avx512.SiLUMul, geluMul: avx512.GELUMul, clamped: avx512.ClampedSiLUMul, softCap: avx512.SoftCap,
		rotate: [...]func(*float32, int, int, *float32, int){avx512.RotateHalves, avx512.RotateNeighbours},
		add:    avx512.Add, sumSquares: avx512.SumSquares, scaleMul: avx512.ScaleMul,
		max: avx512.Max, expSum: avx512.ExpSum, weigh: avx512.Weigh, scale: avx512.Scale,
		cached: [...]cached{
			KVF32: {avx512.DotsF32, avx512.AccumulateF32}, KVF16: {avx512.DotsF16, avx512.AccumulateF16}, KVInt8: {avx512.DotsInt8, avx512.AccumulateInt8},
		},
		placeHalves: avx512.PlaceHalves, placeBytes: avx512.PlaceBytes, absMax: avx512.AbsMax,
	}
	avx512Set = avx512Loops.set()

	vnniDots = &dots{
		name: "avx512vnni", lanes: avx512vnni.Lanes, rowsMax: avx512vnni.RowsMax, fewRows: avx512vnni.FewRows,
		matMul: map[Type]func(*float32, int, int, *byte, *byte, int, int, int){
			Q8_0: avx512vnni.MatMulQ8_0, Q4_0: avx512vnni.MatMulQ4_0, Q4_1: avx512vnni.MatMulQ4_1, Q5_0: avx512vnni.MatMulQ5_0, Q5_1: avx512vnni.MatMulQ5_1,
			IQ4_NL: avx512vnni.MatMulIQ4_NL, MXFP4: avx512vnni.MatMulMXFP4, Q2_K: avx512vnni.MatMulQ2_K, Q3_K: avx512vnni.MatMulQ3_K,
			Q4_K: avx512vnni.MatMulQ4_K, Q5_K: avx512vnni.MatMulQ5_K, Q6_K: avx512vnni.MatMulQ6_K, IQ4_XS: avx512vnni.MatMulIQ4_XS,
		},
		round: avx512vnni.Round,
	}
	vnniSet = avx512Set.withDots(vnniDots)

	bf16Pairs = &pairs{
		cached: cached{avx512bf16.DotsHalves, avx512bf16.AccumulateHalves}, rowsMax: avx512bf16.RowsMax, lanes: avx512bf16.Lanes,
		halves: avx512bf16.PairHalves, numbers: avx512bf16.PairNumbers, dots: avx512bf16.Dots, accumulate: avx512bf16.Accumulate,
	}
	bf16Set = vnniSet.withPairs("avx512bf16", avx512Loops, bf16Pairs)

	amxSet = avx512Set.withDots(vnniDots.withTiles(map[Type]func(*float32, int, *byte, *byte, int, int){
		Q8_0: avx512amx.TilesQ8_0, Q4_0: avx512amx.TilesQ4_0, Q4_1: avx512amx.TilesQ4_1, Q5_0: avx512amx.TilesQ5_0, Q5_1: avx512amx.TilesQ5_1,
		IQ4_NL: avx512amx.TilesIQ4_NL, MXFP4: avx512amx.TilesMXFP4, Q2_K: avx512amx.TilesQ2_K, Q3_K: avx512amx.TilesQ3_K,
		Q4_K: avx512amx.TilesQ4_K, Q5_K: avx512amx.TilesQ5_K, Q6_K: avx512amx.TilesQ6_K, IQ4_XS: avx512amx.TilesIQ4_XS,
	})).withPairs("avx512amx", avx512Loops, bf16Pairs)
)

// tilesAllowed says whether the operating system lets this process use tiles and they give
// what vectors give. They have run in an emulator alone, on no processor yet, so each
// process compares a small product of each type before it trusts them.
var tilesAllowed = sync.OnceValue(func() bool {
	if !avx512amx.Allow() {
		return false
	}
	for t := range vnniDots.matMul {
		if !sameProducts(amxSet, bf16Set, t) {
			return false
		}
	}
	return true
})

// sameProducts says whether two sets give the same bits of one tile of weights of a type.
func sameProducts(a, b *Set, t Type) bool {
	const cols = 512
	state := uint32(1)
	next := func() uint32 { state = state*1664525 + 1013904223; return state >> 16 }
	raw, x := make([]byte, RowTile*t.Bytes(cols)), make([]float32, RowTile*cols)
	for i := range raw {
		raw[i] = byte(next()) &^ 0x40 // no scale is infinite
	}
	for i := range x {
		x[i] = float32(int(next())-1<<15) * float32(1+next()>>13)
	}
	got, want := make([]float32, RowTile*RowTile), make([]float32, RowTile*RowTile)
	a.MatMul(got, RowTile, a.Pack(t, RowTile, cols, raw), a.Input(x), RowTile, 0, RowTile)
	b.MatMul(want, RowTile, b.Pack(t, RowTile, cols, raw), b.Input(x), RowTile, 0, RowTile)
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return false
		}
	}
	return true
}

// vectorSets lists the assembly sets that this processor can run, best first.
func vectorSets() (sets []*Set) {
	if x := &cpu.X86; x.HasAVX2 && x.HasFMA && x.HasF16C {
		wide := x.HasAVX512F && x.HasAVX512DQ && x.HasBMI2
		if wide && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512VNNI {
			if x.HasAVX512BF16 {
				if tilesAllowed() {
					sets = append(sets, amxSet)
				}
				sets = append(sets, bf16Set)
			}
			sets = append(sets, vnniSet)
		}
		sets = append(sets, avx2int8Set) // integers do more than numbers twice as wide
		if wide {
			sets = append(sets, avx512Set)
		}
		sets = append(sets, avx2Set)
	}
	return sets
}
