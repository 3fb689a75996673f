package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// The codec appends to a slice, and reads from a decoder. Whole numbers are zigzag
// varints and ids unsigned varints. Texts and lists begin with their length. An
// empty list and a nil one are written alike.

func appendInt(b []byte, n int) []byte { return binary.AppendVarint(b, int64(n)) }
func appendFloat(b []byte, x float32) []byte {
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}

func appendBool(b []byte, yes bool) []byte {
	if yes {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText[T ~string | ~[]byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decoder reads a payload. After the first fault every read gives zero, and err
// says what was wrong, so callers check once, at the end.
type decoder struct {
	rest []byte
	err  *Error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = Errorf(Protocol, format, args...)
	}
	d.rest = nil
}

// finish returns the first fault. Bytes that are left are a fault too.
func (d *decoder) finish() *Error {
	if d.err == nil && len(d.rest) > 0 {
		d.fail("%d bytes follow the end of the frame's content", len(d.rest))
	}
	return d.err
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail("a field of %d bytes, with only %d left", n, len(d.rest))
		return nil
	}
	taken := d.rest[:n:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) uint() uint64 {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail("a number is cut short or too long")
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *decoder) int64() int64 {
	x, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail("a number is cut short or too long")
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *decoder) int() int { return int(d.int64()) }

func (d *decoder) int32() int32 {
	x := d.int64()
	if x != int64(int32(x)) {
		d.fail("number %d does not fit 32 bits", x)
		return 0
	}
	return int32(x)
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) bool() bool {
	b := d.byte()
	if b > 1 {
		d.fail("a flag is %d, not 0 or 1", b)
	}
	return b == 1
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) float() float32 {
	if b := d.take(4); b != nil {
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
	return 0
}

func appendFloat64(b []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
}

// positive reads a number that is finite and not negative.
func (d *decoder) positive() float64 {
	x := math.Float64frombits(d.uint64())
	if !(x >= 0 && x <= math.MaxFloat64) {
		d.fail("number %v is negative or not finite", x)
		return 0
	}
	return x
}

// count reads the length of a list whose entries take at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.rest)/size) {
		d.fail("a list of %d entries, with only %d bytes left", n, len(d.rest))
		return 0
	}
	return int(n)
}

// view reads a length, and returns that many bytes of the payload itself.
func (d *decoder) view() []byte { return d.take(d.count(1)) }

func (d *decoder) text() string { return string(d.view()) }

// bytes is a copy of a view; nil where the view is empty.
func (d *decoder) bytes() []byte { return append([]byte(nil), d.view()...) }

func (d *decoder) list32() []int32 {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	all := make([]int32, n)
	for i := range all {
		all[i] = d.int32()
	}
	return all
}

func appendList32(b []byte, all []int32) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, x := range all {
		b = appendInt(b, int(x))
	}
	return b
}

func appendError(b []byte, e *Error) []byte {
	b = appendBool(b, e != nil)
	if e == nil {
		return b
	}
	b = append(b, byte(e.Kind))
	b = appendText(b, e.Param)
	b = appendText(b, e.Message)
	b = appendText(b, e.Kernel)
	return appendInt(b, int(e.RetryAfter))
}

func (d *decoder) error() *Error {
	if !d.bool() {
		return nil
	}
	e := &Error{Kind: Kind(d.byte())}
	if int(e.Kind) >= len(kindNames) {
		d.fail("unknown kind of error %d", uint8(e.Kind))
	}
	e.Param, e.Message, e.Kernel = d.text(), d.text(), d.text()
	e.RetryAfter = duration(d.int64())
	return e
}

// utf8Text is a view that must be valid UTF-8.
func (d *decoder) utf8Text() []byte {
	v := d.view()
	if !utf8.Valid(v) {
		d.fail("a text is not valid UTF-8")
	}
	return v
}
