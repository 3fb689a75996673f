package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// kind is the type of a metadata value, numbered as in files.
type kind uint32

const (
	kindU8 kind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

var kindNames = [...]string{"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"}
var kindSizes = [...]int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

func (k kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("value type %d", uint32(k))
}

// size returns the bytes of one value, 0 for strings, arrays and unknown kinds.
func (k kind) size() int {
	if int(k) < len(kindSizes) {
		return kindSizes[k]
	}
	return 0
}

// integral reports whether k is one of the eight integer types.
func (k kind) integral() bool { return k <= kindI32 || k == kindU64 || k == kindI64 }

// value is one metadata value as bytes of the file: a scalar, the text of a
// string, or the elements of an array one after another.
type value struct {
	kind  kind
	elem  kind // of an array
	count int  // of an array
	raw   []byte
	at    int // byte offset of the value's type
}

func (v value) typeName() string {
	if v.kind == kindArray {
		return "array of " + v.elem.String()
	}
	return v.kind.String()
}

// integer reads a scalar of kind k at the start of raw. It refuses unsigned
// numbers beyond the range of int64.
func integer(k kind, raw []byte) (int64, bool) {
	le := binary.LittleEndian
	switch k {
	case kindU8:
		return int64(raw[0]), true
	case kindI8:
		return int64(int8(raw[0])), true
	case kindU16:
		return int64(le.Uint16(raw)), true
	case kindI16:
		return int64(int16(le.Uint16(raw))), true
	case kindU32:
		return int64(le.Uint32(raw)), true
	case kindI32:
		return int64(int32(le.Uint32(raw))), true
	case kindI64:
		return int64(le.Uint64(raw)), true
	case kindU64:
		n := le.Uint64(raw)
		return int64(n), n <= math.MaxInt64
	}
	return 0, false
}

// float reads an f32 or f64 at the start of raw.
func float(k kind, raw []byte) (float64, bool) {
	switch k {
	case kindF32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case kindF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw)), true
	}
	return 0, false
}

// Keys lists the metadata keys in file order.
func (f *File) Keys() []string { return f.keys }

// wrongType returns the error of a getter that found another type.
func (f *File) wrongType(key, want string) error {
	return fmt.Errorf("%s: key %s: has type %s, not %s", f.name, key, f.values[key].typeName(), want)
}

// String reads a string. It need not be valid UTF-8.
func (f *File) String(key string) (string, bool, error) {
	v, ok := f.values[key]
	if ok && v.kind != kindString {
		return "", true, f.wrongType(key, "string")
	}
	return string(v.raw), ok, nil
}

// Uint reads a non-negative integer of any integer type.
func (f *File) Uint(key string) (uint64, bool, error) {
	v, ok := f.values[key]
	if !ok {
		return 0, false, nil
	}
	n, fits := integer(v.kind, v.raw)
	if !fits || n < 0 {
		return 0, true, fmt.Errorf("%s: key %s: is %s, not a whole number from 0 to 2^63-1", f.name, key, f.Text(key))
	}
	return uint64(n), true, nil
}

// Float reads an f32 or f64.
func (f *File) Float(key string) (float64, bool, error) {
	v, ok := f.values[key]
	if !ok {
		return 0, false, nil
	}
	x, fits := float(v.kind, v.raw)
	if !fits {
		return 0, true, f.wrongType(key, "f32 or f64")
	}
	return x, true, nil
}

// Bool reads a bool.
func (f *File) Bool(key string) (bool, bool, error) {
	v, ok := f.values[key]
	if !ok {
		return false, false, nil
	}
	if v.kind != kindBool {
		return false, true, f.wrongType(key, "bool")
	}
	return v.raw[0] == 1, true, nil
}

// Count returns the number of elements of an array, 0 if key is absent or not an
// array.
func (f *File) Count(key string) int { return f.values[key].count }

// elementsMax bounds the arrays that getters copy. It is far above any vocabulary.
// An element of one byte in the file takes eight bytes in an []int64.
const elementsMax = 1 << 22

// array finds an array whose element type allowed accepts; want names that type.
func (f *File) array(key, want string, allowed func(elem kind) bool) (v value, present bool, err error) {
	v, ok := f.values[key]
	switch {
	case !ok:
		return v, false, nil
	case v.kind != kindArray || !allowed(v.elem):
		return v, true, f.wrongType(key, "array of "+want)
	case v.count > elementsMax:
		return v, true, fmt.Errorf("%s: key %s: has %d elements; allowed are up to %d", f.name, key, v.count, elementsMax)
	}
	return v, true, nil
}

// Strings reads an array of strings. All share one copy of their text.
func (f *File) Strings(key string) ([]string, bool, error) {
	v, present, err := f.array(key, "string", func(elem kind) bool { return elem == kindString })
	if !present || err != nil {
		return nil, present, err
	}
	text, out := string(v.raw), make([]string, v.count)
	for i, at := 0, 0; i < v.count; i++ {
		n := int(binary.LittleEndian.Uint64(v.raw[at:]))
		at += 8
		out[i] = text[at : at+n]
		at += n
	}
	return out, true, nil
}

// Ints reads an array of any integer type.
func (f *File) Ints(key string) ([]int64, bool, error) {
	v, present, err := f.array(key, "whole numbers", kind.integral)
	if !present || err != nil {
		return nil, present, err
	}
	out := make([]int64, v.count)
	for i := range out {
		n, fits := integer(v.elem, v.raw[i*v.elem.size():])
		if !fits {
			return nil, true, fmt.Errorf("%s: key %s: element %d is over 2^63-1", f.name, key, i)
		}
		out[i] = n
	}
	return out, true, nil
}

// Floats reads an array of f32 or f64, as float32.
func (f *File) Floats(key string) ([]float32, bool, error) {
	v, present, err := f.array(key, "f32 or f64", func(elem kind) bool { return elem == kindF32 || elem == kindF64 })
	if !present || err != nil {
		return nil, present, err
	}
	out := make([]float32, v.count)
	for i := range out {
		x, _ := float(v.elem, v.raw[i*v.elem.size():])
		out[i] = float32(x)
	}
	return out, true, nil
}

// Bools reads an array of bool.
func (f *File) Bools(key string) ([]bool, bool, error) {
	v, ok, err := f.array(key, "bool", func(elem kind) bool { return elem == kindBool })
	if err != nil || !ok {
		return nil, ok, err
	}
	bools := make([]bool, v.count)
	for i := range bools {
		bools[i] = v.raw[i] != 0
	}
	return bools, true, nil
}

// textBytesMax bounds what Text shows of a string.
const textBytesMax = 60

// Text formats the value of key for people, in short form; "" if absent.
func (f *File) Text(key string) string {
	v, ok := f.values[key]
	if !ok {
		return ""
	}
	switch v.kind {
	case kindString:
		if len(v.raw) > textBytesMax {
			return fmt.Sprintf("%s… (%d bytes)", quote(v.raw[:textBytesMax]), len(v.raw))
		}
		return quote(v.raw)
	case kindArray:
		return fmt.Sprintf("%s, %d elements", v.typeName(), v.count)
	case kindBool:
		return strconv.FormatBool(v.raw[0] == 1)
	case kindF32:
		x, _ := float(v.kind, v.raw)
		return strconv.FormatFloat(x, 'g', -1, 32)
	case kindF64:
		x, _ := float(v.kind, v.raw)
		return strconv.FormatFloat(x, 'g', -1, 64)
	case kindU64:
		return strconv.FormatUint(binary.LittleEndian.Uint64(v.raw), 10)
	}
	n, _ := integer(v.kind, v.raw)
	return strconv.FormatInt(n, 10)
}

// quote formats text on one line and escapes control characters.
func quote(b []byte) string { return strconv.Quote(string(b)) }
