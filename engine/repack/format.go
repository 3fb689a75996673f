package repack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/kernels"
)

// Part is a packed matrix with its name.
type Part struct {
	Name string
	*kernels.Matrix
}

const (
	magic         = "FBREPACK"
	formatVersion = 1
	alignment     = 64 // of data: a cache line, and the widest vector
	headBytes     = 8 + 4*4 + 8
	entryBytes    = 48
	sumBytes      = 8

	// Limits of a header, beside the size of the file.
	keyBytesMax = 4 << 10
	entriesMax  = 1 << 20
)

// entry is a matrix in the header.
type entry struct {
	name               uint64
	kind               kernels.Type
	rows, cols         uint32
	offset, bytes, sum uint64
}

var le = binary.LittleEndian

// hashOf returns the hash that stands for a name.
func hashOf(name string) uint64 { return xxh3.HashString(name) }

// align rounds n up to a multiple of alignment.
func align(n uint64) uint64 { return (n + alignment - 1) &^ (alignment - 1) }

// place lays out the parts in an image of key, in their order, and returns the
// size of the file. The hashes of the data are set later.
func place(key string, parts []Part) (entries []entry, fileBytes uint64, err error) {
	if len(key) > keyBytesMax || len(parts) > entriesMax {
		return nil, 0, fmt.Errorf("a key of %d bytes and %d matrices are more than an image may have", len(key), len(parts))
	}
	at := uint64(headBytes + len(key) + len(parts)*entryBytes + sumBytes)
	seen := map[uint64]bool{}
	for _, p := range parts {
		e := entry{name: hashOf(p.Name), kind: p.Type, rows: uint32(p.Rows), cols: uint32(p.Cols), offset: align(at), bytes: uint64(len(p.Data))}
		if seen[e.name] {
			return nil, 0, fmt.Errorf("matrix %s has the name or the hash of another", p.Name)
		}
		if p.Rows > math.MaxUint32 || p.Cols > math.MaxUint32 {
			return nil, 0, fmt.Errorf("matrix %s of %d×%d is too large", p.Name, p.Rows, p.Cols)
		}
		seen[e.name] = true
		entries = append(entries, e)
		at = e.offset + e.bytes
	}
	return entries, at, nil
}

// encode makes the header of an image.
func encode(key string, entries []entry, fileBytes uint64) []byte {
	header := []byte(magic)
	for _, n := range []uint32{formatVersion, uint32(len(key)), uint32(len(entries)), 0} {
		header = le.AppendUint32(header, n)
	}
	header = le.AppendUint64(header, fileBytes)
	header = append(header, key...)
	for _, e := range entries {
		header = le.AppendUint64(header, e.name)
		for _, n := range []uint32{uint32(e.kind), e.rows, e.cols, 0} {
			header = le.AppendUint32(header, n)
		}
		for _, n := range []uint64{e.offset, e.bytes, e.sum} {
			header = le.AppendUint64(header, n)
		}
	}
	return le.AppendUint64(header, xxh3.Hash(header))
}

// parse reads the header of an image and checks it against the size of the data.
// Its error says why this is not an image of key.
func parse(data []byte, key string) ([]entry, error) {
	if len(data) < headBytes || string(data[:8]) != magic {
		return nil, errors.New("it is no repack image")
	}
	if v := le.Uint32(data[8:]); v != formatVersion {
		return nil, fmt.Errorf("its format has version %d; this program reads %d", v, formatVersion)
	}
	keyBytes, count, fileBytes := le.Uint32(data[12:]), le.Uint32(data[16:]), le.Uint64(data[24:])
	if keyBytes > keyBytesMax || count > entriesMax {
		return nil, fmt.Errorf("a key of %d bytes and %d matrices are more than an image may have", keyBytes, count)
	}
	entriesAt := headBytes + int(keyBytes)
	end := entriesAt + int(count)*entryBytes
	if fileBytes != uint64(len(data)) || end+sumBytes > len(data) {
		return nil, fmt.Errorf("it has %d bytes and says %d", len(data), fileBytes)
	}
	if xxh3.Hash(data[:end]) != le.Uint64(data[end:]) {
		return nil, errors.New("its header is damaged")
	}
	if found := data[headBytes:entriesAt]; string(found) != key {
		return nil, fmt.Errorf("it is of %q", found)
	}
	entries := make([]entry, count)
	from := uint64(end + sumBytes)
	for i := range entries {
		e := readEntry(data[entriesAt+i*entryBytes:])
		if !e.valid(from, fileBytes) {
			return nil, fmt.Errorf("its matrix %d, %d×%d of %v in %d bytes at %d, does not fit", i, e.rows, e.cols, e.kind, e.bytes, e.offset)
		}
		entries[i], from = e, e.offset+e.bytes
	}
	return entries, nil
}

func readEntry(b []byte) entry {
	return entry{
		name: le.Uint64(b), kind: kernels.Type(le.Uint32(b[8:])), rows: le.Uint32(b[12:]), cols: le.Uint32(b[16:]),
		offset: le.Uint64(b[24:]), bytes: le.Uint64(b[32:]), sum: le.Uint64(b[40:]),
	}
}

// valid reports whether e is aligned, lies in [from,to) and can be a matrix.
func (e *entry) valid(from, to uint64) bool {
	return e.kind.Known() && e.rows > 0 && e.cols > 0 && int(e.cols)%e.kind.BlockLen() == 0 &&
		e.offset >= from && e.offset%alignment == 0 && e.offset <= to && e.bytes <= to-e.offset
}
