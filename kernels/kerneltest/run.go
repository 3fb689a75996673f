package kerneltest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// u is half a unit in the last place of 1.
const u = 0x1p-24

// Run checks the set of that name with everything that this package has. It skips where the
// processor or the build does not have the set.
func Run(t *testing.T, name string) {
	set, err := kernels.Lookup(name)
	if err != nil {
		t.Skipf("not compared: %v", err)
	}
	if underRace && name == "ref" {
		t.Skip("the race detector has nothing to see in loops that run alone, and slows them by an order of magnitude")
	}
	ref, _ := kernels.Lookup("ref")
	c := &checker{set: set, ref: ref}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"MatMulEveryShape", c.matMulEveryShape},
		{"MatMulExtremes", c.matMulExtremes},
		{"MatMulSameBitsInAnyShape", c.matMulInvariant},
		{"MatMulUnalignedRaw", c.matMulUnaligned},
		{"MatMulNonFinite", c.matMulNonFinite},
		{"RoundEveryBlock", c.roundEveryBlock},
		{"MatMulWritesItsRowsOnly", c.matMulBounds},
		{"ElementwiseEveryLength", c.elementwise},
		{"RotateSameBitsAsRef", c.rotate},
		{"ActivationsEveryLength", c.activationsEveryLength},
		{"ActivationsWholeRange", c.activationsWholeRange},
		{"SoftmaxEveryLength", c.softmax},
		{"SoftmaxNonFinite", c.softmaxNonFinite},
		{"PeaksEveryLength", c.peaks},
		{"WeighEveryLength", c.weigh},
		{"FoldEveryShape", c.fold},
		{"RMSNormLargeAndSmall", c.rmsNormRange},
		{"AttendEveryShape", c.everyKVType(c.attendEveryShape)},
		{"AttendSameBitsInAnyPages", c.everyKVType(c.attendInvariant)},
		{"AttendSameBitsBesideOthers", c.everyKVType(c.attendQueries)},
		{"AttendInPieces", c.everyKVType(c.attendPieces)},
		{"AttendSinks", c.everyKVType(c.attendSinks)},
		{"PlaceWritesWhatRefDoes", c.everyKVType(c.place)},
		{"KeepsInsideItsOperands", c.everyKVType(c.outside)},
		{"AllocatesNothing", c.everyKVType(c.allocations)},
	} {
		t.Run(test.name, test.run)
	}
}

type checker struct {
	set, ref *kernels.Set
	kv       kernels.KVType // of the caches that newCache makes
	round    bool           // whether their attention may round
}

var kvTypes = []kernels.KVType{kernels.KVF32, kernels.KVF16, kernels.KVInt8}

// everyKVType runs a test on caches of each type, and once where sets may round in attention.
func (c *checker) everyKVType(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		for _, c.kv = range kvTypes {
			t.Run(c.kv.String(), test)
		}
		c.kv, c.round = kernels.KVF16, true
		t.Run("rounded", test)
		c.round = false
	}
}

// types are all that the table knows, so a new one is compared from its first day. Where the
// set rounds nothing, two stand for the Coded types, which share a product there.
func (c *checker) types() (known []kernels.Type) {
	for t := kernels.Type(0); t < 256; t++ {
		if t.Known() && (!t.Coded() || c.set.Round != nil || t == kernels.IQ3_S || t == kernels.TQ2_0) {
			known = append(known, t)
		}
	}
	return known
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// near reports whether got is within the tolerance of want.
func near(got, want float32, tolerance float64) bool {
	if got == want || (got != got && want != want) {
		return true
	}
	return math.Abs(float64(got)-float64(want)) <= tolerance // false for NaN and ∞
}

// sameBits finds the first place where two results differ, or -1.
func sameBits(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}
