package model

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// packJob is a tensor whose rows become matrices: the parts, one after another.
type packJob struct {
	tensor *gguf.Tensor
	parts  []part
}

// part is a matrix: where it goes, and how many of the tensor's rows it has.
type part struct {
	dst  **kernels.Matrix
	rows int
}

// PackedMatrix is a matrix as the kernel set reads it. Its name is unique: that
// of its tensor, and its first row in the tensor.
type PackedMatrix struct {
	Name string
	*kernels.Matrix
}

// Packed finds matrices that were packed before, for the same model and set; it
// returns nil for one that it does not have as described.
type Packed interface {
	Matrix(name string, t kernels.Type, rows, cols, bytes int) *kernels.Matrix
}

// eachPart visits the matrices of all jobs.
func (l *loader) eachPart(visit func(name string, t *gguf.Tensor, p part)) {
	for _, j := range l.jobs {
		row := 0
		for _, p := range j.parts {
			visit(fmt.Sprintf("%s:%d", j.tensor.Name, row), j.tensor, p)
			row += p.rows
		}
	}
}

// reuse takes all matrices from before. If one is missing, it takes none and
// reports false.
func (l *loader) reuse(before Packed, set *kernels.Set) bool {
	var found []*kernels.Matrix
	l.eachPart(func(name string, t *gguf.Tensor, p part) {
		if m := before.Matrix(name, t.Type, p.rows, t.Dims[0], set.PackedBytes(t.Type, p.rows, t.Dims[0])); m != nil {
			found = append(found, m)
		}
	})
	parts := 0
	l.eachPart(func(string, *gguf.Tensor, part) { parts++ })
	if len(found) != parts {
		return false
	}
	l.eachPart(func(_ string, _ *gguf.Tensor, p part) {
		*p.dst, found = found[0], found[1:]
	})
	return true
}

// pack runs the jobs on the whole team, the largest first. It gives the file's
// memory back part by part, so that weights are never resident twice; only that of
// kept is still needed.
func (l *loader) pack(set *kernels.Set, team *kernels.Team, kept *gguf.Tensor) error {
	slices.SortStableFunc(l.jobs, func(a, b packJob) int { return cmp.Compare(b.tensor.Elements(), a.tensor.Elements()) })
	var next atomic.Int64
	var failed atomic.Pointer[gguf.Tensor]
	team.Run(func(int) {
		for i := int(next.Add(1)) - 1; i < len(l.jobs); i = int(next.Add(1)) - 1 {
			if !l.jobs[i].run(set, l.file, kept) {
				failed.Store(l.jobs[i].tensor)
			}
		}
	})
	if t := failed.Load(); t != nil {
		return l.notMade(t)
	}
	return nil
}

// notMade is the error for a tensor whose Make returned nothing.
func (l *loader) notMade(t *gguf.Tensor) error {
	return fmt.Errorf("%s: tensor %s: could not be made: it holds a number that is not finite", l.file.Name(), t.Name)
}

// run packs a tensor; false means that it could not be made.
func (j *packJob) run(set *kernels.Set, f *gguf.File, kept *gguf.Tensor) bool {
	t := j.tensor
	raw := t.Bytes()
	if len(raw) != t.Type.Bytes(t.Elements()) {
		return false
	}
	for _, p := range j.parts {
		n := t.Type.Bytes(t.Dims[0]) * p.rows
		packed := set.Pack(t.Type, p.rows, t.Dims[0], raw[:n:n])
		*p.dst = packed
		if t != kept && t.Make == nil && unsafe.SliceData(packed.Data) != unsafe.SliceData(raw) {
			f.Release(raw[:n:n])
		}
		raw = raw[n:]
	}
	return true
}
