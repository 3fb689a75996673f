//go:build cuda

package cuda

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels"
)

// orders are the orders in which the emulator runs the threads of a block. A kernel that lacks
// a barrier gives other bits in another one. A GPU does not read the variable.
var orders = []string{"forward", "reverse", "random"}

// bench is a device for one test, and what was allocated on it.
type bench struct {
	*testing.T
	device *Device
	args   Args
}

// newBench takes the device. These tests are compiled only with the tag cuda, so a missing
// driver fails them.
func newBench(t *testing.T) *bench {
	t.Helper()
	d, err := Open(os.Getenv("FOREBAY_CUDA_DRIVER"), 0)
	if err != nil {
		t.Fatalf("%v; FOREBAY_CUDA_DRIVER names the emulated driver, which kernels/cuda/build makes", err)
	}
	runtime.LockOSThread()
	b := &bench{T: t, device: d}
	b.must(d.Bind())
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
	return b
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) alloc(bytes int) Address {
	b.Helper()
	at, err := b.device.Alloc(bytes)
	b.must(err)
	b.Cleanup(func() { _ = b.device.Free(at) })
	return at
}

func (b *bench) put(raw []byte) Address {
	b.Helper()
	at := b.alloc(len(raw))
	b.must(b.device.Put(at, raw))
	return at
}

func bytesOf[T float32 | int32](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

func (b *bench) numbers(x []float32) Address { b.Helper(); return b.put(bytesOf(x)) }
func (b *bench) ints(x ...int32) Address     { b.Helper(); return b.put(bytesOf(x)) }

// planes puts a matrix on the device.
func (b *bench) planes(t kernels.Type, rows, cols int, raw []byte) Address {
	b.Helper()
	at := b.alloc(PlanesBytes(t, rows, cols))
	b.must(PutPlanes(t, rows, cols, 0, raw, func(place, n int, fill func([]byte)) error {
		piece := make([]byte, n)
		fill(piece)
		return b.device.Put(at+Address(place), piece)
	}))
	return at
}

func (b *bench) get(at Address, n int) []float32 {
	b.Helper()
	x := make([]float32, n)
	b.must(b.device.Get(bytesOf(x), at))
	return x
}

// launch runs a kernel with the arguments in b.args.
func (b *bench) launch(name string, grid cudrv.Grid, threads, shared int) {
	b.Helper()
	k, err := b.device.Kernel(name, shared)
	b.must(err)
	b.must(b.device.Launch(k, grid, threads, shared, &b.args))
	b.must(b.device.Wait())
}

// inOrders calls run in each order and demands the same bits of its result, which it returns.
func (b *bench) inOrders(run func() []float32) (result []float32) {
	b.Helper()
	for _, order := range orders {
		b.Setenv("FOREBAY_EMU_ORDER", order)
		got := run()
		if result == nil {
			result = got
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(result[i]) {
				b.Fatalf("number %d is %v in the order %s, and %v in the order %s", i, got[i], order, result[i], orders[0])
			}
		}
	}
	return result
}

func (b *bench) near(got, want []float32, tolerance func(i int) float64) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%d numbers, want %d", len(got), len(want))
	}
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= tolerance(i)) {
			b.Fatalf("number %d is %v, ref %v: %g apart, allowed %g", i, got[i], want[i], d, tolerance(i))
		}
	}
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// batch is the device's batch of rows with one page table. Attention takes tile tokens together,
// or those of alone one by one.
type batch struct {
	tokens, positions []int32
	pages             []int32
	tile              int
	alone             []int32

	// Where sequences have states:
	firsts, states, runs, runRows   []int32
	checkpointRows, checkpointSlots []int32
}

func (b *bench) batch(x batch) Address {
	n := len(x.positions)
	var tiles, sizes []int32
	for i := 0; x.tile > 0 && i < n; i += x.tile {
		tiles, sizes = append(tiles, int32(i)), append(sizes, int32(min(x.tile, n-i)))
	}
	words := []int32{int32(n), int32(n), int32(len(x.alone)), int32(len(tiles)), int32(n), 13, int32(len(x.runs)), int32(len(x.checkpointRows))}
	all := make([]int32, n) // a batch asks for the logits of all rows
	for i := range all {
		all[i] = int32(i)
	}
	for _, array := range [][]int32{x.tokens, x.positions, nil, all, x.alone, tiles, sizes, x.firsts, x.states, x.runs, x.runRows, x.checkpointRows, x.checkpointSlots} { // the table begins at 0
		words = append(append(words, array...), make([]int32, n-len(array))...)
	}
	raw := make([]byte, 0, 4*len(words))
	for _, w := range append(words, x.pages...) {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(w))
	}
	return b.put(raw)
}

func ref(t *testing.T) *kernels.Set {
	t.Helper()
	set, err := kernels.Lookup("ref")
	if err != nil {
		t.Fatal(err)
	}
	return set
}
