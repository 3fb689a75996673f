package repack

import (
	"fmt"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/kernels"
)

// Image is an open image. Its matrices point into the file.
type Image struct {
	file    *mapped.File
	entries []entry
	byName  map[uint64]int
}

// open maps the image at path if it is an image of key.
func open(path, key string) (*Image, error) {
	file, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	im := &Image{file: file, byName: map[uint64]int{}}
	if im.entries, err = parse(file.Data, key); err != nil {
		_ = file.Close()
		return nil, err
	}
	for i, e := range im.entries {
		im.byName[e.name] = i
	}
	mapped.HugePages(file.Data)
	return im, nil
}

func (im *Image) data(e *entry) []byte {
	return im.file.Data[e.offset : e.offset+e.bytes : e.offset+e.bytes]
}

// Check compares every matrix with its hash, on the whole team. The error gives
// only the number of wrong ones, because one wrong matrix makes the file useless.
func (im *Image) Check(team *kernels.Team) error {
	var next, wrong atomic.Int64
	team.Run(func(int) {
		for i := int(next.Add(1)) - 1; i < len(im.entries); i = int(next.Add(1)) - 1 {
			if e := &im.entries[i]; xxh3.Hash(im.data(e)) != e.sum {
				wrong.Add(1)
			}
		}
	})
	if n := wrong.Load(); n > 0 {
		return fmt.Errorf("%d of its %d matrices are damaged", n, len(im.entries))
	}
	return nil
}

// Matrix returns the named matrix; nil if there is none, or if its type, shape or
// size differs.
func (im *Image) Matrix(name string, t kernels.Type, rows, cols, bytes int) *kernels.Matrix {
	i, ok := im.byName[hashOf(name)]
	if !ok {
		return nil
	}
	e := &im.entries[i]
	if e.kind != t || int(e.rows) != rows || int(e.cols) != cols || e.bytes != uint64(bytes) {
		return nil
	}
	return &kernels.Matrix{Type: t, Rows: rows, Cols: cols, Data: im.data(e)}
}

// Close unmaps the image; its matrices must not be used afterwards.
func (im *Image) Close() error { return im.file.Close() }
