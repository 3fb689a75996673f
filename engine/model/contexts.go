package model

import (
	"sync/atomic"

	"github.com/forebay-io/forebay/kernels"
)

// contexts cuts attention into smaller items where few streams decode: an item
// is one piece of the context of one tile and KV head. So all workers find work
// even if there are fewer heads than workers, and the last items are short. The
// worker that computes the last piece of a tile and head merges its pieces.
type contexts struct {
	piecesMax int // of one context
	heads     int // KV heads of the layers whose contexts are cut
	partial   int // PartialLen of these layers
	items     []contextPiece
	left      []atomic.Int32 // [tile and head] pieces that are not computed yet
	partials  []float32      // [tile and head][piecesMax][PartialLen]
}

// contextPiece is piece number piece of the count that the context of a tile
// and head has.
type contextPiece struct{ tile, head, piece, count int }

// headItemsMax is the most tiles and heads for which pieces are worth while.
func (m *Model) headItemsMax() int { return tileItems * m.team.Workers() }

// newContexts reserves room for contexts of contextTokens, and says which layers have
// them: those that see whole contexts, where these are all of one shape.
func (m *Model) newContexts(contextTokens int, rows func(n, width int) []float32) contexts {
	pieces := (contextTokens + kernels.PieceLen - 1) / kernels.PieceLen
	if pieces < 2 || m.set.Merge == nil || m.config.Encoder.On {
		return contexts{}
	}
	x := contexts{piecesMax: pieces}
	for i := range m.shapes {
		l, s := &m.config.Layers[i], &m.shapes[i]
		if l.KVHeads == 0 || l.WindowTokens > 0 || l.Chunked {
			continue
		}
		partial := kernels.PartialLen(s.group, l.HeadDim)
		if x.heads == 0 {
			x.heads, x.partial = l.KVHeads, partial
		}
		s.inPieces = x.heads == l.KVHeads && x.partial == partial
	}
	if x.heads == 0 {
		return contexts{}
	}
	most := m.headItemsMax()
	x.items, x.left = make([]contextPiece, 0, most*pieces), make([]atomic.Int32, most)
	x.partials = rows(most, pieces*x.partial)
	return x
}

// layContexts makes the items, or none where whole contexts serve as well.
func (p *pass) layContexts() {
	b, x := &p.batch, &p.batch.contexts
	heads := x.heads
	x.items = x.items[:0]
	if x.piecesMax == 0 || len(b.tiles)*heads > p.m.headItemsMax() || len(b.tiles) != p.rows {
		return // a tile of several rows would need as many partials
	}
	for i, t := range b.tiles {
		count := b.positions[t.row]/kernels.PieceLen + 1
		for piece := range count {
			for head := range heads {
				x.items = append(x.items, contextPiece{tile: i, head: head, piece: piece, count: count})
			}
		}
	}
	if len(x.items) == len(b.tiles)*heads { // one piece each
		x.items = x.items[:0]
	}
}

// begin marks all items of a layer as not computed.
func (x *contexts) begin() {
	for _, i := range x.items {
		if i.piece == 0 {
			x.left[i.tile*x.heads+i.head].Store(int32(i.count))
		}
	}
}

// attendPiece computes an item with a, which is aimed at its tile and head. It
// reports whether a.Out is written, which the last piece of a tile and head does.
func (p *pass) attendPiece(a *kernels.Attention, i contextPiece) bool {
	x, at := &p.batch.contexts, i.tile*p.batch.contexts.heads+i.head
	size := x.partial
	partials := row(x.partials, at, x.piecesMax*size)[:i.count*size]
	a.Partial, a.Piece = row(partials, i.piece, size), i.piece
	p.m.set.Attend(a)
	a.Partial = nil
	if x.left[at].Add(-1) > 0 {
		return false
	}
	p.m.set.Merge(a, partials)
	return true
}
