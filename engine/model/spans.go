package model

import (
	"sync/atomic"

	"github.com/forebay-io/forebay/kernels"
)

// spans are the items of attention where few streams decode: each is one span of one
// tile and KV head, so that more workers than heads find something to do, and the last
// ones little. Who computes a tile and head's last span merges them all.
type spans struct {
	max   int // of a context
	items []spanItem
	left  []atomic.Int32 // of each tile and head, spans that are not computed yet
	parts []float32      // [tile and head][max][PartLen]
}

// spanItem is where an item stands among the tile's.
type spanItem struct{ tile, head, span, count int }

// headItemsMax is how many tiles and heads there may be at most for spans to be worth while.
func (m *Model) headItemsMax() int { return tileItems * m.team.Workers() }

// newSpans reserves room for contexts of that many tokens.
func (m *Model) newSpans(contextTokens int, rows func(n, width int) []float32) spans {
	n := (contextTokens + kernels.AttendSpan - 1) / kernels.AttendSpan
	if n < 2 || m.set.Merge == nil {
		return spans{}
	}
	most := m.headItemsMax()
	return spans{
		max: n, items: make([]spanItem, 0, most*n), left: make([]atomic.Int32, most),
		parts: rows(most, n*kernels.PartLen(m.group, m.config.HeadDim)),
	}
}

// laySpans makes the items, or none.
func (m *Model) laySpans() {
	b, heads := &m.batch, m.config.KVHeads
	s := &b.spans
	s.items = s.items[:0]
	if s.max == 0 || len(b.tiles)*heads > m.headItemsMax() || len(b.tiles) != m.rows {
		return // rows of a tile would need as many parts
	}
	for i, t := range b.tiles {
		count := b.positions[t.row]/kernels.AttendSpan + 1
		for span := range count {
			for head := range heads {
				s.items = append(s.items, spanItem{tile: i, head: head, span: span, count: count})
			}
		}
	}
	if len(s.items) == len(b.tiles)*heads { // one span each
		s.items = s.items[:0]
	}
}

// begin makes all items of a layer not computed yet.
func (s *spans) begin(heads int) {
	for _, i := range s.items {
		if i.span == 0 {
			s.left[i.tile*heads+i.head].Store(int32(i.count))
		}
	}
}

// attendSpan computes an item with a, whose tile and head it is of, and reports whether
// a.Out has been written: the tile's other spans were there.
func (m *Model) attendSpan(a *kernels.Attention, i spanItem) bool {
	s, at := &m.batch.spans, i.tile*m.config.KVHeads+i.head
	size := kernels.PartLen(m.group, m.config.HeadDim)
	parts := row(s.parts, at, s.max*size)[:i.count*size]
	a.Part, a.Span = row(parts, i.span, size), i.span
	m.set.Attend(a)
	a.Part = nil
	if s.left[at].Add(-1) > 0 {
		return false
	}
	m.set.Merge(a, parts)
	return true
}
