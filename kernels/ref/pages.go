package ref

import (
	"encoding/binary"
	"fmt"
	"math"
)

// KVType is the type in which pages hold keys and values.
type KVType uint8

const (
	KVF32 KVType = iota
	// KVF16 are halves. Numbers beyond ±65504 become ±65504, so a number never becomes
	// infinite; NaN stays NaN.
	KVF16
	// KVInt8 are integers from −127 to 127 with a float32 scale for the key and one
	// for the value of each token and KV head. A key or a value with a number that is
	// not finite has the scale NaN, so all of it reads as NaN.
	KVInt8
	// KVBF16 are the upper halves of float32, the nearest; only a GPU keeps it.
	KVBF16
	// KVFP8 are numbers of e4m3, with scales as those of KVInt8; only a GPU keeps it.
	KVFP8
)

var kvTypes = [...]struct {
	name         string
	bytes, scale int // of a number, and for each token and head
}{KVF32: {"f32", 4, 0}, KVF16: {"f16", 2, 0}, KVInt8: {"int8", 1, 4}, KVBF16: {"bf16", 2, 0}, KVFP8: {"fp8", 1, 4}}

// ParseKVType finds a type by its name: f32, f16, int8, bf16 or fp8.
func ParseKVType(name string) (KVType, error) {
	for t := range kvTypes {
		if kvTypes[t].name == name {
			return KVType(t), nil
		}
	}
	return 0, fmt.Errorf("no type of keys and values is named %q; give f32, f16 or int8, or on a GPU bf16 or fp8", name)
}

// Known reports whether t is one of the constants.
func (t KVType) Known() bool { return int(t) < len(kvTypes) }

// GPUOnly reports whether only a GPU keeps keys and values of this type: the loops of the CPU's sets have none for it.
func (t KVType) GPUOnly() bool { return t > KVInt8 }

func (t KVType) String() string { return kvTypes[t].name }

// TokenBytes is the size of one token's key, or value, of one KV head.
func (t KVType) TokenBytes(headDim int) int { return headDim*kvTypes[t].bytes + kvTypes[t].scale }

// KVLayout is the layout of keys and values in a layer's two pools. A page of a pool has a
// block for each KV head. A block begins with the scales of its tokens, where the
// type has any; the numbers follow. Number d of the token in slot s is number
// s·HeadDim+d of the values' block and d·PageTokens+s of the keys': the keys of a
// page lie side by side, number by number.
type KVLayout struct {
	KVType     KVType
	PageTokens int
	KVHeads    int
	HeadDim    int
	Spacing    int // bytes from a page to the next, where other layers' lie between; 0 means none do
}

// kvAlign divides a block's size: a cache line.
const kvAlign = 64

// KVSlack is the number of bytes of a pool behind its last page: loops read narrow types in
// whole vectors.
const KVSlack = 64

// BlockBytes is the size of one page of one KV head in one pool.
func (l *KVLayout) BlockBytes() int {
	return (l.PageTokens*l.KVType.TokenBytes(l.HeadDim) + kvAlign - 1) / kvAlign * kvAlign
}

// PageBytes is the size of a page in one pool; keys and values take twice as much.
func (l *KVLayout) PageBytes() int { return l.KVHeads * l.BlockBytes() }

// PageStride is the bytes from the beginning of a page to that of the next in one pool.
func (l *KVLayout) PageStride() int {
	if l.Spacing > 0 {
		return l.Spacing
	}
	return l.PageBytes()
}

// PoolBytes is the size of a pool of that many pages.
func (l *KVLayout) PoolBytes(pages int) int { return pages*l.PageStride() + KVSlack }

// NumberBytes is the size of a number.
func (l *KVLayout) NumberBytes() int { return kvTypes[l.KVType].bytes }

// ScaleBytes is the size of the scales that a block begins with.
func (l *KVLayout) ScaleBytes() int { return l.PageTokens * kvTypes[l.KVType].scale }

// Block is where the block of a page and KV head begins in a pool.
func (l *KVLayout) Block(page, head int) int { return page*l.PageStride() + head*l.BlockBytes() }

// number is number i of a block, without its scale.
func (l *KVLayout) number(block []byte, i int) float32 {
	at := l.ScaleBytes() + i*l.NumberBytes()
	switch l.KVType {
	case KVF16:
		return half(block[at:])
	case KVInt8:
		return float32(int8(block[at]))
	case KVBF16:
		return BFloat(binary.LittleEndian.Uint16(block[at:]))
	case KVFP8:
		return FP8(block[at])
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(block[at:]))
}

// scale is the scale of the numbers in a slot of a block.
func (l *KVLayout) scale(block []byte, slot int) float32 {
	if l.ScaleBytes() == 0 {
		return 1
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(block[4*slot:]))
}

// Place writes a token's key and value, [KVHeads][HeadDim] each, to a slot of a page.
func (l *KVLayout) Place(keys, values []byte, page, slot int, k, v []float32) {
	for h := range l.KVHeads {
		at, from := l.Block(page, h), h*l.HeadDim
		l.place(keys[at:], slot, slot, l.PageTokens, k[from:from+l.HeadDim])
		l.place(values[at:], slot, slot*l.HeadDim, 1, v[from:from+l.HeadDim])
	}
}

// place writes x to the numbers first, first+step, … of a block.
func (l *KVLayout) place(block []byte, slot, first, step int, x []float32) {
	size := l.NumberBytes()
	at, stride := l.ScaleBytes()+first*size, step*size
	switch l.KVType {
	case KVF32:
		for _, v := range x {
			binary.LittleEndian.PutUint32(block[at:], math.Float32bits(v))
			at += stride
		}
	case KVF16:
		for _, v := range x {
			binary.LittleEndian.PutUint16(block[at:], ToHalf(v))
			at += stride
		}
	case KVInt8:
		by := PutScale(block[4*slot:], absMax(x))
		for _, v := range x {
			block[at] = byte(toInt8(v * by))
			at += stride
		}
	case KVBF16:
		for _, v := range x {
			binary.LittleEndian.PutUint16(block[at:], ToBFloat(v))
			at += stride
		}
	case KVFP8:
		by := putScale(block[4*slot:], absMax(x), fp8Max)
		for _, v := range x {
			block[at] = ToFP8(v * by)
			at += stride
		}
	}
}

// scaledMin is the smallest maximum of a row that gets a scale: what is divided by it must be
// finite.
const scaledMin = 0x1p-100

// PutScale stores the scale for numbers up to ±top and gives its inverse, which makes them
// integers.
func PutScale(dst []byte, top float32) (by float32) { return putScale(dst, top, 127) }

// putScale is PutScale where ±largest is what ±top becomes.
func putScale(dst []byte, top, largest float32) (by float32) {
	scale := top / largest
	switch {
	case !(top <= math.MaxFloat32):
		scale = float32(math.NaN())
	case top < scaledMin:
		scale = 0
	default:
		by = largest / top
	}
	binary.LittleEndian.PutUint32(dst, math.Float32bits(scale))
	return by
}

// absMax is the largest |x[i]|; NaN is above all.
func absMax(x []float32) float32 {
	top := uint32(0)
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	return math.Float32frombits(top)
}

// toInt8 rounds to the nearest integer, ties to even; NaN becomes the lowest one.
func toInt8(x float32) int8 {
	if !(x >= -128) {
		return -128
	}
	return int8(min(127, math.RoundToEven(float64(x))))
}
