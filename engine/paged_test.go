package engine

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/forebay-io/forebay/engine/model"
)

// pagedModel stands in for a model: its keys and values are the tokens
// themselves, and its logits a function of all tokens that it finds in the
// pages. A wrong page, a missed copy or a wrong position changes them all.
type pagedModel struct {
	vocab, pageTokens int
	cells             []int32
	logits            []float32
	rows              int
}

func newPagedModel(vocab, pageTokens, pages int) *pagedModel {
	m := &pagedModel{vocab: vocab, pageTokens: pageTokens, cells: make([]int32, pageTokens*pages)}
	for i := range m.cells {
		m.cells[i] = -1
	}
	return m
}

func (m *pagedModel) CopyPage(dst, src int32) {
	n := m.pageTokens
	copy(m.cells[int(dst)*n:(int(dst)+1)*n], m.cells[int(src)*n:(int(src)+1)*n])
}

// CopyState and ClearState are asked for where a model has states: see statefulModel.
func (m *pagedModel) CopyState(dst, src int32) { panic("a copy of a state that is not there") }

func (m *pagedModel) ClearState(slot int32) { panic("a clearing of a state that is not there") }

func (m *pagedModel) cell(pages []int32, at int) *int32 {
	return &m.cells[int(pages[at/m.pageTokens])*m.pageTokens+at%m.pageTokens]
}

func (m *pagedModel) Forward(chunks []model.Chunk) []float32 {
	m.logits = m.logits[:0]
	for _, s := range chunks {
		for i, token := range s.Tokens {
			*m.cell(s.Pages, s.Start+i) = token
			m.rows++
		}
	}
	for _, s := range chunks {
		h := uint64(14695981039346656037)
		for i := range s.Start + len(s.Tokens) {
			h = (h ^ uint64(*m.cell(s.Pages, i)+1)) * 1099511628211
			if i >= s.Start+len(s.Tokens)-s.Logits {
				m.fill(h)
			}
		}
	}
	return m.logits
}

func (m *pagedModel) fill(h uint64) {
	x := rand.NewPCG(h, 1)
	for range m.vocab {
		m.logits = append(m.logits, float32(x.Uint64()>>40)/(1<<21)-4)
	}
}

// computer is a model that cannot be stopped.
type computer interface {
	Forward(chunks []model.Chunk) []float32
	CopyPage(dst, src int32)
	CopyState(dst, src int32)
	ClearState(slot int32)
}

// stoppable stops only after all keys and values are written, which is the worst
// that a step which was given up may leave behind.
type stoppable struct{ computer }

func (m stoppable) ForwardUnless(stop *atomic.Bool, chunks []model.Chunk) ([]float32, bool) {
	logits := m.Forward(chunks)
	return logits, stop == nil || !stop.Load()
}
