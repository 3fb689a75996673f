package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/forebay-io/forebay/kernels"
)

// Limits of a file, beside its size. They are far above the values in real models,
// and keep small entries from using much memory.
const (
	keysMax             = 1 << 16
	tensorsMax          = 1 << 16
	keyBytesMax         = 1<<16 - 1 // the format's own limit
	tensorNameBytesMax  = 64        // the format's own limit
	dimsMax             = 4         // the format's own limit
	arrayDepthMax       = 4
	tensorElementsMax   = math.MaxInt >> 1 // so that an int holds the product of the dimensions
	alignmentDefault    = 32
	alignmentMax        = 1 << 16
	keyBytesMin         = 8 + 1 + 4 + 1         // length, one byte, type, one byte of value
	tensorEntryBytesMin = 8 + 1 + 4 + 8 + 4 + 8 // length, one byte, dims, one dim, type, offset
)

// reader reads the header. err keeps the first failure; later reads return zeros,
// so callers check err once in each iteration.
type reader struct {
	name string
	data []byte
	pos  int
	err  error
}

// fail records an error about the field at byte offset at.
func (r *reader) fail(at int, field, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: byte %d: %s: %s", r.name, at, field, fmt.Sprintf(format, args...))
	}
}

func (r *reader) left() int { return len(r.data) - r.pos }

func (r *reader) bytes(n uint64, field string) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(r.left()) {
		r.fail(r.pos, field, "needs %d bytes, but the file has only %d left", n, r.left())
		return nil
	}
	b := r.data[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b
}

func (r *reader) u32(field string) uint32 {
	if b := r.bytes(4, field); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(field string) uint64 {
	if b := r.bytes(8, field); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// identifier reads a key or a tensor name: 1 to max bytes of printable ASCII.
func (r *reader) identifier(field string, max int) string {
	at := r.pos
	n := r.u64(field + " length")
	if r.err == nil && (n == 0 || n > uint64(max)) {
		r.fail(at, field, "is %d bytes long; allowed are 1 to %d", n, max)
	}
	b := r.bytes(n, field)
	for i, c := range b {
		if c < ' ' || c > '~' {
			r.fail(at+8+i, field, "has the byte 0x%02x; allowed is printable ASCII", c)
			break
		}
	}
	return string(b)
}

// count reads a number of entries. Each takes at least entryBytes.
func (r *reader) count(field string, max, entryBytes int) int {
	at := r.pos
	n := r.u64(field)
	switch {
	case r.err != nil:
	case n > uint64(max):
		r.fail(at, field, "is %d; the most allowed is %d", n, max)
	case n > uint64(r.left()/entryBytes):
		r.fail(at, field, "is %d, which cannot fit into the %d bytes that are left", n, r.left())
	default:
		return int(n)
	}
	return 0
}

// file reads everything in file order: header, metadata, directory, extents.
func (r *reader) file() *File {
	f := &File{name: r.name, sizeBytes: len(r.data), values: map[string]value{}, tensors: map[string]int{}}
	f.version = r.header()
	tensors := r.count("tensor count", tensorsMax, tensorEntryBytesMin)
	keys := r.count("key count", keysMax, keyBytesMin)
	for range keys {
		r.keyValue(f)
		if r.err != nil {
			return nil
		}
	}
	alignment := r.alignment(f)
	entries := make([]entry, 0, tensors)
	for range tensors {
		e := r.entry()
		if _, ok := f.tensors[e.Name]; ok {
			r.fail(e.at, "tensor "+e.Name, "appears twice")
		}
		if r.err != nil {
			return nil
		}
		f.tensors[e.Name] = len(entries)
		entries = append(entries, e)
	}
	if r.err != nil {
		return nil
	}
	dataAt := (r.pos + alignment - 1) / alignment * alignment
	f.header = r.data[:min(dataAt, len(r.data))]
	f.Tensors = r.place(entries, dataAt, alignment)
	return f
}

// header checks magic and version and returns the version.
func (r *reader) header() uint32 {
	magic := r.bytes(4, "magic")
	if r.err == nil && string(magic) != "GGUF" {
		r.fail(0, "magic", "is %q, so this is not a GGUF file", magic)
	}
	version := r.u32("version")
	switch {
	case r.err != nil:
	case version != 0 && version&0xffff == 0:
		r.fail(4, "version", "is byte-swapped (%d): big-endian files are not supported, convert the model again", bits.ReverseBytes32(version))
	case version != 2 && version != 3:
		r.fail(4, "version", "is %d; versions 2 and 3 are supported", version)
	}
	return version
}

func (r *reader) keyValue(f *File) {
	at := r.pos
	key := r.identifier("key", keyBytesMax)
	if _, ok := f.values[key]; ok {
		r.fail(at, "key "+key, "appears twice")
	}
	v := r.value(key)
	if r.err == nil {
		f.keys = append(f.keys, key)
		f.values[key] = v
	}
}

// value reads a type and a value; an array stays as its bytes.
func (r *reader) value(key string) value {
	at := r.pos
	v := value{at: at, kind: kind(r.u32(key + " type"))}
	switch v.kind {
	case kindString:
		v.raw = r.bytes(r.u64(key+" length"), key)
	case kindArray:
		v.elem, v.count, v.raw = r.array(key, 1)
	default:
		if v.kind.size() == 0 {
			r.fail(at, key, "has the unknown value type %d", uint32(v.kind))
		}
		v.raw = r.bytes(uint64(v.kind.size()), key)
		if v.kind == kindBool && r.err == nil && v.raw[0] > 1 {
			r.fail(r.pos-1, key, "is a bool of value %d; allowed are 0 and 1", v.raw[0])
		}
	}
	return v
}

// array reads an array's element type and count, and skips its elements.
func (r *reader) array(key string, depth int) (elem kind, count int, raw []byte) {
	at := r.pos
	elem = kind(r.u32(key + " element type"))
	entryBytes := elem.size()
	switch {
	case r.err != nil:
		return 0, 0, nil
	case elem == kindString:
		entryBytes = 8
	case elem == kindArray && depth == arrayDepthMax:
		r.fail(at, key, "has arrays nested more than %d deep", arrayDepthMax)
		return 0, 0, nil
	case elem == kindArray:
		entryBytes = 4 + 8
	case entryBytes == 0:
		r.fail(at, key, "has the unknown element type %d", uint32(elem))
		return 0, 0, nil
	}
	count = r.count(key+" count", math.MaxInt, entryBytes)
	start := r.pos
	switch elem {
	case kindString:
		for i := 0; i < count && r.err == nil; i++ {
			r.bytes(r.u64(key+" element length"), key)
		}
	case kindArray:
		for i := 0; i < count && r.err == nil; i++ {
			r.array(key, depth+1)
		}
	default:
		r.bytes(uint64(count*entryBytes), key)
	}
	if r.err != nil {
		return 0, 0, nil
	}
	return elem, count, r.data[start:r.pos]
}

// alignment reads general.alignment. The format defines it as a u32 and a multiple
// of 8; it need not be a power of two.
func (r *reader) alignment(f *File) int {
	const key = "general.alignment"
	v, ok := f.values[key]
	if !ok || r.err != nil {
		return alignmentDefault
	}
	if v.kind != kindU32 {
		r.fail(v.at, key, "has type %s, not u32", v.kind)
		return alignmentDefault
	}
	n := binary.LittleEndian.Uint32(v.raw)
	if n == 0 || n%8 != 0 || n > alignmentMax {
		r.fail(v.at, key, "is %d; allowed are the multiples of 8 from 8 to %d", n, alignmentMax)
		return alignmentDefault
	}
	return int(n)
}

// entry is a tensor of the directory before its data is placed.
type entry struct {
	Tensor
	at     int // of the entry itself
	offset uint64
	bytes  int
}

func (r *reader) entry() entry {
	e := entry{at: r.pos}
	e.Name = r.identifier("tensor name", tensorNameBytesMax)
	field := "tensor " + e.Name
	dimsAt := r.pos
	n := r.u32(field + " dimension count")
	if r.err == nil && (n == 0 || n > dimsMax) {
		r.fail(dimsAt, field, "has %d dimensions; allowed are 1 to %d", n, dimsMax)
		return e
	}
	elements := uint64(1)
	for range n {
		d := r.u64(field + " dimension")
		hi, lo := bits.Mul64(elements, d)
		if r.err == nil && (d == 0 || hi != 0 || lo > tensorElementsMax) {
			r.fail(r.pos-8, field, "has a dimension of %d; the product must be from 1 to %d", d, tensorElementsMax)
			return e
		}
		elements = lo
		e.Dims = append(e.Dims, int(d))
	}
	typeAt := r.pos
	e.Type = kernels.Type(r.u32(field + " type"))
	e.offset = r.u64(field + " offset")
	if r.err == nil {
		e.bytes = r.extent(&e, typeAt, elements)
	}
	return e
}

// extent returns the number of bytes of e's elements.
func (r *reader) extent(e *entry, typeAt int, elements uint64) int {
	field := "tensor " + e.Name
	l, ok := layoutOf(e.Type)
	switch {
	case !ok:
		r.fail(typeAt, field, "has the unknown or removed type %d", uint32(e.Type))
	case e.Dims[0]%l.elements != 0:
		r.fail(typeAt, field, "has rows of %d, which the blocks of %d of type %s do not divide", e.Dims[0], l.elements, e.Type)
	case elements/uint64(l.elements) > uint64(len(r.data)/l.bytes):
		r.fail(e.at, field, "is larger than the whole file: %d elements of type %s in %d bytes", elements, e.Type, len(r.data))
	default:
		return int(elements/uint64(l.elements)) * l.bytes
	}
	return 0
}

// place checks the offsets of the tensors and sets their bytes.
func (r *reader) place(entries []entry, dataAt, alignment int) []Tensor {
	room := uint64(max(0, len(r.data)-dataAt))
	tensors := make([]Tensor, len(entries))
	for i := range entries {
		e := &entries[i]
		field := "tensor " + e.Name
		switch {
		case e.offset%uint64(alignment) != 0:
			r.fail(e.at, field, "begins at offset %d, which is not a multiple of the alignment %d", e.offset, alignment)
		case e.offset > room || uint64(e.bytes) > room-e.offset:
			r.fail(e.at, field, "lies outside the file: offset %d and %d bytes, but there are %d bytes of data (is the file cut short?)", e.offset, e.bytes, room)
		}
		if r.err != nil {
			return nil
		}
		start := dataAt + int(e.offset)
		e.Data = r.data[start : start+e.bytes : start+e.bytes]
		tensors[i] = e.Tensor
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.offset, b.offset) })
	for i := 1; i < len(entries); i++ {
		before, e := &entries[i-1], &entries[i]
		if before.offset+uint64(before.bytes) > e.offset {
			r.fail(e.at, "tensor "+e.Name, "overlaps tensor %s", before.Name)
		}
	}
	return tensors
}
