package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a header. They are far above the values in real models, and keep small
// entries from using much memory.
const (
	headerBytesMax = 100_000_000 // the limit of the format's own reader
	tensorsMax     = 1 << 16
	nameBytesMax   = 1 << 10
	dimsMax        = 8
	metadataKey    = "__metadata__"
)

// typeBits has the bits of a number of each type in the format.
var typeBits = map[string]int{
	"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
	"F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
	"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
}

// Types names the types that a file may hold.
func Types() []string { return slices.Sorted(maps.Keys(typeBits)) }

// Parse reads a file that is already in memory; name stands for its path in errors.
// The File keeps data, which must not change.
func Parse(name string, data []byte) (*File, error) {
	r := &reader{name: name}
	if len(data) < 8 {
		r.fail("has %d bytes; a safetensors file begins with the 8 bytes of its header's length", len(data))
		return nil, r.err
	}
	n := binary.LittleEndian.Uint64(data)
	switch {
	case n > headerBytesMax:
		r.fail("header length is %d; the most allowed is %d, so this is no safetensors file", n, headerBytesMax)
	case n > uint64(len(data)-8):
		r.fail("header length is %d, but the file has only %d bytes left (is the file cut short?)", n, len(data)-8)
	case n < 2 || data[8] != '{':
		r.fail("header does not begin with {, so this is no safetensors file")
	case !utf8.Valid(data[8 : 8+n]):
		r.fail("header is not valid UTF-8")
	}
	if r.err != nil {
		return nil, r.err
	}
	r.data, r.pos = data[:8+n], 8
	f := &File{name: name, tensors: map[string]int{}}
	r.header(f)
	r.place(f, data[8+n:])
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// reader reads the header's JSON and accepts only the format's shape. err keeps
// the first failure; later reads return zeros.
type reader struct {
	name string
	data []byte
	pos  int
	err  error

	spans []span // of the tensors, in file order
}

// span is the range of a tensor's bytes after the header.
type span struct{ begin, end int }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: byte %d: %s", r.name, r.pos, fmt.Sprintf(format, args...))
	}
}

// next returns the next byte that is not a space, without consuming it; 0 at the
// end.
func (r *reader) next() byte {
	for r.err == nil && r.pos < len(r.data) {
		if c := r.data[r.pos]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		r.pos++
	}
	return 0
}

// punct reads the punctuation mark c, which must be next.
func (r *reader) punct(c byte) {
	if got := r.next(); got != c {
		r.fail("header: expected %q, found %q", c, got)
		return
	}
	r.pos++
}

// list calls item for each element between open and close.
func (r *reader) list(open, close byte, item func()) {
	r.punct(open)
	if r.next() == close {
		r.pos++
		return
	}
	for r.err == nil {
		item()
		if r.next() == close {
			r.pos++
			return
		}
		r.punct(',')
	}
}

// object calls member with each key, before its value.
func (r *reader) object(member func(key string)) {
	r.list('{', '}', func() {
		key := r.text(nameBytesMax)
		r.punct(':')
		if r.err == nil {
			member(key)
		}
	})
}

// text reads a string of at most most bytes, without unescaping, and refuses a
// longer one. If most is negative it skips any string and returns "".
func (r *reader) text(most int) string {
	r.punct('"')
	start := r.pos
	for r.err == nil && r.pos < len(r.data) && r.data[r.pos] != '"' {
		if r.data[r.pos] == '\\' {
			r.pos++
		}
		r.pos++
	}
	if r.pos >= len(r.data) {
		r.fail("header: ends within a string")
	}
	if r.err != nil {
		return ""
	}
	raw := r.data[start:r.pos]
	r.pos++
	switch {
	case most < 0:
		return ""
	case len(raw) > most:
		r.fail("header: has a string of %d bytes; allowed are %d", len(raw), most)
		return ""
	case !slices.ContainsFunc(raw, func(c byte) bool { return c == '\\' || c < ' ' }):
		return string(raw)
	}
	var s string
	if err := json.Unmarshal(r.data[start-1:r.pos], &s); err != nil {
		r.fail("header: has a string that is not valid: %v", err)
	}
	return s
}

// whole reads an integer from 0 to the largest int.
func (r *reader) whole() int {
	r.next()
	start := r.pos
	for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
		r.pos++
	}
	n, err := strconv.ParseInt(string(r.data[start:min(r.pos, start+20)]), 10, strconv.IntSize)
	if err != nil || r.pos-start > 1 && r.data[start] == '0' {
		r.pos = start
		r.fail("header: expected a whole number from 0 to 2^%d-1", strconv.IntSize-1)
	}
	return int(n)
}

// wholes reads a list of at most most integers.
func (r *reader) wholes(field string, most int) []int {
	out := []int{}
	r.list('[', ']', func() {
		if len(out) == most {
			r.fail("header: %s has more than %d numbers", field, most)
		}
		out = append(out, r.whole())
	})
	return out
}

// header reads the whole header. Spaces may follow it.
func (r *reader) header(f *File) {
	metadata := false
	r.object(func(key string) {
		_, twice := f.tensors[key]
		switch {
		case twice || key == metadataKey && metadata:
			r.fail("header: tensor %q appears twice", key)
		case key == metadataKey:
			metadata = true
			r.object(func(string) { r.text(-1) })
		case len(f.Tensors) == tensorsMax:
			r.fail("header: has more than %d tensors", tensorsMax)
		default:
			f.tensors[key] = len(f.Tensors)
			f.Tensors = append(f.Tensors, r.tensor(key))
		}
	})
	if r.err == nil && r.next() != 0 {
		r.fail("header: has %q behind its end", r.data[r.pos])
	}
}

// tensor reads an entry and checks its size against its type and shape.
func (r *reader) tensor(name string) Tensor {
	t := Tensor{Name: name}
	var offsets []int
	seen := map[string]bool{}
	r.object(func(key string) {
		if seen[key] {
			r.fail("tensor %q: %s appears twice", name, key)
		}
		seen[key] = true
		switch key {
		case "dtype":
			t.Type = r.text(nameBytesMax)
		case "shape":
			t.Shape = r.wholes("shape of tensor "+name, dimsMax)
		case "data_offsets":
			offsets = r.wholes("data_offsets of tensor "+name, 2)
		default:
			r.fail("tensor %q: key %q is not understood", name, key)
		}
	})
	elementBits, known := typeBits[t.Type]
	switch {
	case r.err != nil:
	case t.Shape == nil || len(offsets) != 2 || !seen["dtype"]:
		r.fail("tensor %q: needs dtype, shape and two data_offsets", name)
	case !known:
		r.fail("tensor %q: has the unknown type %q; known: %s", name, t.Type, strings.Join(Types(), ", "))
	default:
		want, ok := extent(t.Shape, elementBits)
		if begin, end := offsets[0], offsets[1]; !ok || end < begin || end-begin != want {
			r.fail("tensor %q: type %s and shape %v do not take the bytes from %d to %d", name, t.Type, t.Shape, begin, end)
		}
		r.spans = append(r.spans, span{offsets[0], offsets[1]})
	}
	return t
}

// extent returns the bytes of a tensor; false if that is not an integer or
// overflows.
func extent(shape []int, elementBits int) (int, bool) {
	total := uint64(elementBits)
	for _, n := range shape {
		hi, lo := bits.Mul64(total, uint64(n))
		if hi != 0 || lo > 1<<62 {
			return 0, false
		}
		total = lo
	}
	return int(total / 8), total%8 == 0
}

// place sorts the tensors by position, checks that they fill data, and sets their
// bytes.
func (r *reader) place(f *File, data []byte) {
	if r.err != nil {
		return
	}
	order := make([]int, len(f.Tensors))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(r.spans[a].begin, r.spans[b].begin), cmp.Compare(r.spans[a].end, r.spans[b].end))
	})
	tensors, at := make([]Tensor, len(order)), 0
	for to, from := range order {
		t, s := f.Tensors[from], r.spans[from]
		switch {
		case s.begin != at:
			r.fail("tensor %q: begins at offset %d; the one before ends at %d", t.Name, s.begin, at)
		case s.end > len(data):
			r.fail("tensor %q: ends at offset %d, but there are %d bytes of data (is the file cut short?)", t.Name, s.end, len(data))
		}
		if r.err != nil {
			return
		}
		t.Data = data[s.begin:s.end:s.end]
		tensors[to], at = t, s.end
		f.tensors[t.Name] = to
	}
	if at != len(data) {
		r.fail("the tensors end at offset %d, but there are %d bytes of data", at, len(data))
	}
	f.Tensors = tensors
}
