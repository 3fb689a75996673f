package safetensors

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/engine/mapped"
)

// File holds the tensors of one file, or of all files of an index.
type File struct {
	name    string
	tensors map[string]int
	closers []func() error

	// Tensors lists the tensors in the order of their bytes, file by file. Read only.
	Tensors []Tensor
}

// Tensor is one entry of a header.
type Tensor struct {
	Name string
	// Type is the file's name for it: BF16, F16, F32 or another of Types.
	Type string
	// Shape has the sizes from the outermost axis to the fastest one, as in Python.
	// It is empty for a single number.
	Shape []int
	// Data is the tensor's bytes in the mapping: row-major, little-endian, at any
	// alignment. Read only.
	Data []byte
}

// Open maps a *.safetensors file, or every file that a *.safetensors.index.json
// names in its folder. It never blocks on a FIFO or a device.
func Open(path string) (*File, error) {
	if strings.HasSuffix(path, ".json") {
		return openSet(path)
	}
	m, err := mapped.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	f, err := Parse(path, m.Data)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	f.closers = append(f.closers, m.Close)
	return f, nil
}

// Name returns the path that was opened.
func (f *File) Name() string { return f.name }

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := f.tensors[name]
	if !ok {
		return nil, false
	}
	return &f.Tensors[i], true
}

// Elements returns the number of elements of t, 1 for a single number.
func (t *Tensor) Elements() int {
	n := 1
	for _, size := range t.Shape {
		n *= size
	}
	return n
}

// Close releases the mappings. Tensor data must not be used afterwards.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.closers {
		errs = append(errs, c())
	}
	*f = File{name: f.name}
	return errors.Join(errs...)
}

// openSet opens the files of an index. The index says which file has a tensor: a
// tensor of the same name in another file is ignored, and a tensor that is not in
// the index is an error.
func openSet(path string) (_ *File, err error) {
	index, err := readIndex(path)
	if err != nil {
		return nil, err
	}
	set := &File{name: path, tensors: map[string]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, set.Close())
		}
	}()
	files := map[string]bool{}
	for _, file := range index {
		files[file] = true
	}
	ordered := make([]string, 0, len(files))
	for file := range files {
		ordered = append(ordered, file)
	}
	slices.Sort(ordered)
	for _, file := range ordered {
		part, err := Open(filepath.Join(filepath.Dir(path), file))
		if err != nil {
			return nil, fmt.Errorf("%s names %s: %w", path, file, err)
		}
		set.closers = append(set.closers, part.closers...)
		if err := set.take(part, file, index); err != nil {
			return nil, err
		}
	}
	for name, file := range index {
		if _, ok := set.tensors[name]; !ok {
			return nil, fmt.Errorf("%s: weight_map has tensor %q in %s, which does not have it", path, name, file)
		}
	}
	return set, nil
}

// take adds the tensors of a part that index lists.
func (f *File) take(part *File, file string, index map[string]string) error {
	for _, t := range part.Tensors {
		home, known := index[t.Name]
		if !known {
			return fmt.Errorf("%s: tensor %q is not in the weight_map of %s", part.name, t.Name, f.name)
		}
		if home == file {
			f.tensors[t.Name] = len(f.Tensors)
			f.Tensors = append(f.Tensors, t)
		}
	}
	return nil
}

// digestSpanBytes is how much of each end of each tensor a digest covers.
const digestSpanBytes = 16 << 10

// Digest returns 32 hexadecimal digits that identify the weights. They cover the
// names, types, shapes and both ends of every tensor. It is for cache keys and
// gives no protection against a forged file.
func (f *File) Digest() string {
	h := xxh3.New()
	for i := range f.Tensors {
		t := &f.Tensors[i]
		_, _ = fmt.Fprintf(h, "%q %s %v\n", t.Name, t.Type, t.Shape)
		_, _ = h.Write(t.Data[:min(len(t.Data), digestSpanBytes)])
		_, _ = h.Write(t.Data[max(0, len(t.Data)-digestSpanBytes):])
	}
	sum := h.Sum128().Bytes()
	return fmt.Sprintf("%x", sum[:])
}
