package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/kernels"
)

// File is a model's metadata and tensors: an open GGUF file, a split one, or the
// result of a Draft.
type File struct {
	name      string
	version   uint32
	sizeBytes int
	header    []byte // of a parsed file: everything before the tensors' data
	identity  string // of a Draft's File: the part of the digest that names its source
	closers   []func() error
	mapped    bool

	keys    []string // in file order
	values  map[string]value
	tensors map[string]int // name → index in Tensors

	// Tensors is the directory in file order. Read only.
	Tensors []Tensor
}

// Tensor is one entry of the directory.
type Tensor struct {
	Name string
	Type kernels.Type
	// Dims has one to four sizes; Dims[0] is the row length, the fastest axis.
	Dims []int
	// Data is the tensor's bytes in the file's mapping. Read only. It is nil if no
	// file holds these bytes; then each call of Make makes them.
	Data []byte
	Make func() []byte
}

// bytes returns the length of Bytes, for any type that a file may hold.
func (t *Tensor) bytes() int {
	l, _ := layoutOf(t.Type)
	return t.Elements() / l.elements * l.bytes
}

// Bytes returns Data, or the result of Make. Read only.
func (t *Tensor) Bytes() []byte {
	if t.Make != nil {
		return t.Make()
	}
	return t.Data
}

// Elements returns the number of elements of t.
func (t *Tensor) Elements() int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// Open maps the file at path and reads its directory. path may be any part of a
// split model; Open then opens all parts. It never blocks on a FIFO or a device.
func Open(path string) (*File, error) {
	f, err := openOne(path)
	if err != nil {
		return nil, err
	}
	if _, split := f.values[keySplitCount]; split {
		return f.join(path)
	}
	return f, nil
}

func openOne(path string) (*File, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open model file: %w", err)
	}
	f, err := Parse(path, m.Data)
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	f.closers, f.mapped = []func() error{m.Close}, true
	return f, nil
}

// Parse reads a GGUF file that is already in memory; name stands for its path
// in errors. The File keeps data, which must not change.
func Parse(name string, data []byte) (*File, error) {
	r := &reader{name: name, data: data}
	f := r.file()
	if r.err != nil {
		return nil, r.err
	}
	return f, nil
}

// Close releases the mapping. Tensor data must not be used afterwards, and the
// File has no keys and no tensors any more.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.closers {
		errs = append(errs, c())
	}
	if f.closers != nil {
		*f = File{name: f.name, version: f.version}
	}
	return errors.Join(errs...)
}

// Release frees the memory of data, a tensor's bytes that were copied elsewhere.
// They stay readable: the next read loads them from the file again. Without a
// mapping it does nothing.
func (f *File) Release(data []byte) {
	if f.mapped {
		mapped.Release(data)
	}
}

// Name returns the path or name that the file was opened with.
func (f *File) Name() string { return f.name }

// Version returns the version of the file's format, 2 or 3; 0 if no file was parsed.
func (f *File) Version() int { return int(f.version) }

// SizeBytes returns the size of the file, or of all its parts.
func (f *File) SizeBytes() int { return f.sizeBytes }

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := f.tensors[name]
	if !ok {
		return nil, false
	}
	return &f.Tensors[i], true
}

// Parameters returns the number of elements in all tensors.
func (f *File) Parameters() int {
	n := 0
	for i := range f.Tensors {
		n += f.Tensors[i].Elements()
	}
	return n
}

// TypeUse says how much of a file has one tensor type.
type TypeUse struct {
	Type    kernels.Type
	Tensors int
	Bytes   int
}

// TypeUses lists the file's tensor types, most bytes first.
func (f *File) TypeUses() []TypeUse {
	var uses []TypeUse
	for i := range f.Tensors {
		t := &f.Tensors[i]
		at := slices.IndexFunc(uses, func(u TypeUse) bool { return u.Type == t.Type })
		if at < 0 {
			at = len(uses)
			uses = append(uses, TypeUse{Type: t.Type})
		}
		uses[at].Tensors++
		uses[at].Bytes += t.bytes()
	}
	slices.SortStableFunc(uses, func(a, b TypeUse) int { return b.Bytes - a.Bytes })
	return uses
}

// digestSpanBytes is how much of each end of each tensor a digest covers.
const digestSpanBytes = 16 << 10

// Digest returns 32 hexadecimal digits that identify the model. They cover the
// size, all metadata, the directory and both ends of every tensor. It is for cache
// keys and gives no protection against a forged file.
func (f *File) Digest() string {
	h := xxh3.New()
	_ = binary.Write(h, binary.LittleEndian, uint64(f.sizeBytes))
	_, _ = h.Write(f.header)
	_, _ = h.WriteString(f.identity)
	for i := range f.Tensors {
		d := f.Tensors[i].Data
		_, _ = h.Write(d[:min(len(d), digestSpanBytes)])
		_, _ = h.Write(d[max(0, len(d)-digestSpanBytes):])
	}
	sum := h.Sum128().Bytes()
	return fmt.Sprintf("%x", sum[:])
}
