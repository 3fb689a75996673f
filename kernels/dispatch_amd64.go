//go:build amd64 && !purego

package kernels

import (
	"maps"
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
		name: "avx2", lanes: avx2.Lanes, rowsMax: avx2.RowsMax, products: avx2Products,
		siLUMul: avx2.SiLUMul, geluMul: avx2.GELUMul, clamped: avx2.ClampedSiLUMul, softCap: avx2.SoftCap,
		rotate: [...]func(*float32, int, int, *float32, int){avx2.RotateHalves, avx2.RotateNeighbours},
		add:    avx2.Add, mulAdd: avx2.MulAdd, sumSquares: avx2.SumSquares, scaleMul: avx2.ScaleMul,
		max: avx2.Max, expSum: avx2.ExpSum, weigh: avx2.Weigh, scale: avx2.Scale, fold: avx2.Fold,
		cached: [...]cached{
			KVF32: {avx2.DotsF32, avx2.AccumulateF32}, KVF16: {avx2.DotsF16, avx2.AccumulateF16}, KVInt8: {avx2.DotsInt8, avx2.AccumulateInt8},
		},
		placeHalves: avx2.PlaceHalves, placeBytes: avx2.PlaceBytes, absMax: avx2.AbsMax,
	}).set()

	avx2Integers = &integers{
		name: "avx2int8", lanes: avx2int8.Lanes, rowsMax: avx2int8.RowsMax,
		products: avx2int8Products, unpackings: avx2int8Unpackings, round: avx2int8.Round,
	}
	avx2int8Set = avx2Set.withIntegers(avx2Integers)

	avx512Loops = &vector{
		name: "avx512", lanes: avx512.Lanes, rowsMax: avx512.RowsMax, products: avx512Products,
		siLUMul: avx512.SiLUMul, geluMul: avx512.GELUMul, clamped: avx512.ClampedSiLUMul, softCap: avx512.SoftCap,
		rotate: [...]func(*float32, int, int, *float32, int){avx512.RotateHalves, avx512.RotateNeighbours},
		add:    avx512.Add, mulAdd: avx512.MulAdd, sumSquares: avx512.SumSquares, scaleMul: avx512.ScaleMul,
		max: avx512.Max, expSum: avx512.ExpSum, weigh: avx512.Weigh, scale: avx512.Scale, fold: avx512.Fold,
		cached: [...]cached{
			KVF32: {avx512.DotsF32, avx512.AccumulateF32}, KVF16: {avx512.DotsF16, avx512.AccumulateF16}, KVInt8: {avx512.DotsInt8, avx512.AccumulateInt8},
		},
		placeHalves: avx512.PlaceHalves, placeBytes: avx512.PlaceBytes, absMax: avx512.AbsMax,
	}
	avx512Set = avx512Loops.set()

	avx512Integers = &integers{
		name: "avx512vnni", lanes: avx512vnni.Lanes, rowsMax: avx512vnni.RowsMax, fewRows: avx512vnni.FewRows,
		products: avx512vnniProducts, unpackings: with(avx2int8Unpackings, avx512vnniUnpackings), round: avx512vnni.Round,
	}
	vnniSet = avx512Set.withIntegers(avx512Integers)

	bf16Pairs = &bfloatPairs{
		cached: cached{avx512bf16.DotsHalves, avx512bf16.AccumulateHalves}, rowsMax: avx512bf16.RowsMax, lanes: avx512bf16.Lanes,
		halves: avx512bf16.PairHalves, numbers: avx512bf16.PairNumbers, dots: avx512bf16.Dots, accumulate: avx512bf16.Accumulate,
	}
	bf16Set = vnniSet.withPairs("avx512bf16", avx512Loops, bf16Pairs)

	amxSet = avx512Set.withIntegers(avx512Integers.withAMX(avx512amxProducts)).withPairs("avx512amx", avx512Loops, bf16Pairs).
		withManyRows("tiles", bf16Set, "vectors")
)

// with is a with what b has.
func with[K comparable, V any](a, b map[K]V) map[K]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// amxAllowed reports whether the operating system lets this process use AMX and its tiles
// give the bits of the vectors. They have run in an emulator only, on no processor yet, so
// each process compares a small product of each type before it trusts them.
var amxAllowed = sync.OnceValue(func() bool {
	if !avx512amx.Allow() {
		return false
	}
	for t := range typeTable {
		if t.BlockLen() > 1 && !sameProducts(amxSet, bf16Set, t) {
			return false
		}
	}
	return true
})

// sameProducts reports whether two sets give the same bits of one tile of weights of a type.
func sameProducts(a, b *Set, t Type) bool {
	p := newTrial(t, RowTile, 512, RowTile)
	got, want := p.run(a), p.run(b)
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
				if amxAllowed() {
					sets = append(sets, amxSet)
				}
				sets = append(sets, bf16Set)
			}
			sets = append(sets, vnniSet)
		}
		sets = append(sets, avx2int8Set) // before avx512, which has no products of quantised weights
		if wide {
			sets = append(sets, avx512Set)
		}
		sets = append(sets, avx2Set)
	}
	return sets
}
