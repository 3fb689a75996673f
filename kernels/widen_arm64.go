//go:build !purego

package kernels

import (
	"encoding/binary"
	"unsafe"

	"github.com/forebay-io/forebay/kernels/neon"
	"github.com/forebay-io/forebay/kernels/ref"
)

// neonCached are neon's loops over keys and values. Narrow types are widened to float32, some
// positions at a time, before the loops read them.
func neonCached() (all [3]cached) {
	all[KVF32] = cached{
		dots: func(dst *float32, dstStride int, q *float32, dim, rows int, k *byte, kStride, count int, scale float32, ahead *byte) {
			neon.Dots(dst, dstStride, q, dim, rows, float32At(k), kStride, count, scale, float32At(ahead))
		},
		accumulate: func(out *float32, dim, rows int, v *byte, p *float32, pStride, count int, ahead *byte) {
			neon.Accumulate(out, dim, rows, float32At(v), p, pStride, count, float32At(ahead))
		},
	}
	all[KVF16] = widened(2, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = ref.Half(binary.LittleEndian.Uint16(src[2*i:]))
		}
	})
	all[KVInt8] = widened(1, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = float32(int8(src[i]))
		}
	})
	return all
}

func float32At(b *byte) *float32 { return (*float32)(unsafe.Pointer(b)) }

// widenedMax is how many numbers are widened at once, on the stack.
const widenedMax = 2048

// widened is the loops over numbers of size bytes, which widen makes float32. No output
// depends on how many positions are widened at once.
func widened(size int, widen func(dst []float32, src []byte)) cached {
	return cached{
		dots: func(dst *float32, dstStride int, q *float32, dim, rows int, k *byte, kStride, count int, scale float32, _ *byte) {
			var some [widenedMax]float32
			numbers, most := room(some[:], dim)
			for at := 0; at < count; at += most {
				n := min(most, count-at)
				for d := range dim {
					widen(numbers[d*n:(d+1)*n], unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(k), (d*kStride+at)*size)), n*size))
				}
				neon.Dots(item(dst, at), dstStride, q, dim, rows, &numbers[0], n, n, scale, &numbers[0])
			}
		},
		accumulate: func(out *float32, dim, rows int, v *byte, p *float32, pStride, count int, _ *byte) {
			var some [widenedMax]float32
			numbers, most := room(some[:], dim)
			for at := 0; at < count; at += most {
				n := min(most, count-at)
				widen(numbers[:n*dim], unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(v), at*dim*size)), n*dim*size))
				neon.Accumulate(out, dim, rows, &numbers[0], item(p, at), pStride, n, &numbers[0])
			}
		},
	}
}

// room is space for the numbers of most positions, dim numbers each.
func room(some []float32, dim int) (numbers []float32, most int) {
	if dim > len(some) {
		return make([]float32, dim), 1
	}
	return some, len(some) / dim
}

func item(x *float32, i int) *float32 { return (*float32)(unsafe.Add(unsafe.Pointer(x), 4*i)) }
