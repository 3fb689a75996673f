//go:build cuda

package gpu

import (
	"errors"
	"unsafe"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// loader puts weights on a device. The first failure stays in err.
type loader struct {
	device *cuda.Device
	held   []cuda.Address
	bytes  int // of all weights
	sent   int // bytes of matrices
	stages [2]stage
	next   int // of stages
	err    error
	// loaded, if it is not nil, is called after each matrix with the bytes so far.
	loaded func(bytes int)
}

// stage is pinned memory through which pieces of weights pass: while the device copies one,
// the other is filled.
type stage struct {
	memory []byte
	copied cuda.Event // the last piece is on the device
}

// send puts a piece, which fill writes, on the device, at some time before finish.
func (l *loader) send(to cuda.Address, bytes int, fill func([]byte)) (err error) {
	s := &l.stages[l.next]
	l.next = (l.next + 1) % len(l.stages)
	if s.memory == nil {
		if s.memory, err = cudrv.Pin(cuda.PieceBytes); err != nil {
			return err
		}
		if s.copied, err = l.device.NewEvent(); err != nil {
			return err
		}
	} else if err := s.copied.Wait(); err != nil {
		return err
	}
	piece := s.memory[:bytes]
	fill(piece)
	if err := l.device.PutLater(to, piece); err != nil {
		return err
	}
	return l.device.Mark(s.copied)
}

// finish waits for what was sent, and frees the stages.
func (l *loader) finish() {
	l.err = errors.Join(l.err, l.device.Wait())
	for i := range l.stages {
		s := &l.stages[i]
		if s.memory != nil {
			l.err = errors.Join(l.err, s.copied.Close(), cudrv.Unpin(s.memory))
		}
		*s = stage{}
	}
}

func (l *loader) alloc(bytes int) cuda.Address {
	if l.err != nil {
		return 0
	}
	var at cuda.Address
	if at, l.err = l.device.Alloc(bytes); l.err == nil {
		l.held = append(l.held, at)
	}
	return at
}

// vector puts numbers on the device; none are address 0.
func (l *loader) vector(x []float32) cuda.Address {
	if len(x) == 0 {
		return 0
	}
	at := l.alloc(4 * len(x))
	if l.err == nil {
		l.err = l.device.Put(at, unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x)))
	}
	l.bytes += 4 * len(x)
	return at
}

func (l *loader) norm(n model.DeviceNorm) norm { return norm{l.vector(n.Weight), l.vector(n.Bias)} }

// matrices puts the rows of matrices on the device, as one matrix where they have one type.
func (l *loader) matrices(all ...model.DeviceLinear) []matrix {
	var placed []matrix
	first := 0
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Type == all[0].Type {
			n++
		}
		m := l.stack(all[:n])
		m.first = first
		first += m.rows
		placed, all = append(placed, m), all[n:]
	}
	return placed
}

// matrix puts one matrix on the device.
func (l *loader) matrix(one model.DeviceLinear) matrix { return l.stack([]model.DeviceLinear{one}) }

func (l *loader) stack(all []model.DeviceLinear) matrix {
	m := matrix{kind: all[0].Type, cols: all[0].Cols}
	biased := false
	for _, one := range all {
		m.rows += one.Rows
		biased = biased || one.Bias != nil
	}
	if biased {
		var bias []float32
		for _, one := range all {
			bias = append(bias, one.Bias...)
			bias = append(bias, make([]float32, one.Rows-len(one.Bias))...)
		}
		m.bias = l.vector(bias)
	}
	m.data = l.alloc(cuda.PlanesBytes(m.kind, m.rows, m.cols))
	l.put(m, all)
	l.bytes += cuda.PlanesBytes(m.kind, m.rows, m.cols)
	return m
}

// put fills m's planes with the rows of all.
func (l *loader) put(m matrix, all []model.DeviceLinear) {
	if l.err == nil {
		l.err = cuda.CheckMatrix(m.kind, m.cols)
	}
	row := 0
	for _, one := range all {
		if l.err != nil {
			return
		}
		l.err = cuda.PutPlanes(m.kind, m.rows, m.cols, row, one.Data, func(at, bytes int, fill func([]byte)) error {
			return l.send(m.data+cuda.Address(at), bytes, fill)
		})
		row += one.Rows
	}
	l.sent += cuda.PlanesBytes(m.kind, m.rows, m.cols)
	if l.loaded != nil {
		l.loaded(l.sent)
	}
}

// expertMatrices puts the matrices that of gives for each expert side by side.
func (l *loader) expertMatrices(all []model.DeviceFeedForward, of func(*model.DeviceFeedForward) []model.DeviceLinear) []expertMatrix {
	var placed []expertMatrix
	parts := of(&all[0])
	first := 0
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].Type == parts[0].Type {
			n++
		}
		m := expertMatrix{matrix: matrix{kind: parts[0].Type, cols: parts[0].Cols, first: first}}
		from := len(of(&all[0])) - len(parts)
		for _, one := range parts[:n] {
			m.rows += one.Rows
		}
		m.bytes = cuda.PlanesBytes(m.kind, m.rows, m.cols)
		m.data = l.alloc(m.bytes * len(all))
		var bias []float32
		biased := false
		for e := range all {
			mine := of(&all[e])[from : from+n]
			one := m.matrix
			one.data += cuda.Address(e * m.bytes)
			l.put(one, mine)
			for _, part := range mine {
				bias = append(bias, part.Bias...)
				bias = append(bias, make([]float32, part.Rows-len(part.Bias))...)
				biased = biased || part.Bias != nil
			}
		}
		if biased {
			m.bias = l.vector(bias)
		}
		l.bytes += m.bytes * len(all)
		first += m.rows
		placed, parts = append(placed, m), parts[n:]
	}
	return placed
}
