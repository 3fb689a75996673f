package model

import (
	"fmt"
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// Paging says where the keys and values of layers lie in pages. A page of the pool has those
// of its tokens for all layers. With Options.Windows it has either those of all layers that
// see everything, or those of some layers with windows: then the two kinds have page tables
// of their own, and pages that no layer with a window sees any more can be given back.
type Paging struct {
	PageBytes int
	// WindowPages is how many pages the layers with windows take beside the one of the other
	// layers: the number of Chunk.Windows. It is 0 where all layers are in one page.
	WindowPages  int
	WindowTokens int  // a token sees itself and WindowTokens−1 before it, in these layers
	Chunked      bool // it sees those of its own chunk of WindowTokens instead

	tables  []int // of each layer: 0 is Chunk.Pages, g+1 is Chunk.Windows[g]
	offsets []int // of each layer in a page's keys, and in its values
}

// Paging says how the layers share pages by these options, of which ContextTokens,
// PageTokens, KVType and Windows count.
func (c *Config) Paging(o *Options) Paging {
	p := Paging{PageBytes: c.PageBytes(o.KVType, o.PageTokens)}
	tokens, windowed := c.windowed()
	if !o.Windows || tokens == 0 || tokens >= o.ContextTokens {
		return p
	}
	sizes, seen, widest, windows := make([]int, len(c.Layers)), 0, 0, 0
	for i := range c.Layers {
		if !c.stores(i) {
			continue
		}
		l := c.Layers[i].kvLayout(o.KVType, o.PageTokens)
		if sizes[i] = l.PageBytes(); windowed[i] {
			windows, widest = windows+1, max(widest, sizes[i])
		} else {
			seen += sizes[i]
		}
	}
	if seen == 0 {
		return p // a block would have a page with nothing in it
	}
	// Of the sizes of pages at which the windows fill theirs, that with which a sequence of
	// many windows takes least.
	best := 0
	for n := 1; n <= windows; n++ {
		size := max(seen, (windows+n-1)/n*widest)
		offsets, tables, pages := pack(sizes, windowed, size)
		took := size * (longWindows + pages)
		if best == 0 || took < best {
			best = took
			p = Paging{PageBytes: 2 * size, WindowPages: pages, WindowTokens: tokens, Chunked: c.ChunkTokens > 0, tables: tables, offsets: offsets}
		}
	}
	return p
}

// longWindows is the length in windows for which the size of pages is chosen.
const longWindows = 8

// pack lays the layers with windows into pages of a size, in their order, and the others into
// one page.
func pack(sizes []int, windowed []bool, size int) (offsets, tables []int, pages int) {
	offsets, tables = make([]int, len(sizes)), make([]int, len(sizes))
	others, at := 0, size
	for i, n := range sizes {
		switch {
		case n == 0:
		case !windowed[i]:
			offsets[i], others = others, others+n
		default:
			if at+n > size {
				pages, at = pages+1, 0
			}
			offsets[i], tables[i], at = at, pages, at+n
		}
	}
	return offsets, tables, pages
}

// windowed says which layers' keys and values are seen for a time only, by themselves and by
// all layers that read them, and for how many tokens; 0 where there are none.
func (c *Config) windowed() (tokens int, each []bool) {
	each = make([]bool, len(c.Layers))
	if c.Encoder.On || c.Latent.Rank > 0 {
		return 0, each
	}
	for i := range each {
		each[i] = c.stores(i)
	}
	for i := range c.Layers {
		l := &c.Layers[i]
		if l.KVHeads == 0 {
			continue
		}
		each[l.KeysOf] = each[l.KeysOf] && (c.ChunkTokens == 0 && l.WindowTokens > 0 || l.Chunked)
	}
	for i := range c.Layers {
		if l := &c.Layers[i]; l.KVHeads > 0 && each[l.KeysOf] {
			tokens = max(tokens, l.WindowTokens)
			if l.Chunked {
				tokens = c.ChunkTokens
			}
		}
	}
	return tokens, each
}

// table is the page table by which row finds the keys and values of the layer's own kind.
func (p *pass) table(layer, row int) []int32 {
	if m := p.m; m.paging.WindowPages > 0 {
		if t := m.paging.tables[m.config.Layers[layer].KeysOf]; t > 0 {
			return p.batch.windows[row][t-1]
		}
	}
	return p.batch.pages[row]
}

// reservePools sets up the pages of every layer.
func (m *Model) reservePools() error {
	m.pools = make([]pool, len(m.shapes))
	if m.paging.WindowPages > 0 {
		return m.reserveShared()
	}
	for i := range m.pools {
		layout := &m.shapes[i].layout
		if !m.config.stores(i) {
			continue
		}
		one, err := m.reservePool(layout)
		if err != nil {
			return err
		}
		m.pools[i] = one
		m.regions = append(m.regions, region{one, layout.PageBytes()})
	}
	return nil
}

// reserveShared sets up one memory, of which every layer has its part of each page.
func (m *Model) reserveShared() error {
	size := m.paging.PageBytes / 2
	all, err := m.reservePool(&kernels.KVLayout{Spacing: size})
	if err != nil {
		return err
	}
	m.regions = append(m.regions, region{all, size})
	for i := range m.pools {
		if m.config.stores(i) {
			at := m.paging.offsets[i]
			m.pools[i] = pool{keys: all.keys[at:], values: all.values[at:]}
			m.shapes[i].layout.Spacing = size
		}
	}
	for i := range m.shapes { // those that read another's
		if of := m.config.Layers[i].KeysOf; m.shapes[i].group > 0 {
			m.shapes[i].layout.Spacing = m.shapes[of].layout.Spacing
		}
	}
	return nil
}

func (m *Model) reservePool(layout *kernels.KVLayout) (p pool, err error) {
	if m.options.Pages > (math.MaxInt-kernels.KVSlack)/layout.PageStride() {
		return p, fmt.Errorf("%d pages of %d bytes in a layer are more than memory can hold", m.options.Pages, 2*layout.PageStride())
	}
	if p.keys, err = m.memory.bytes(layout.PoolBytes(m.options.Pages)); err == nil {
		p.values, err = m.memory.bytes(layout.PoolBytes(m.options.Pages))
	}
	return p, err
}

// region is memory whose pages are copied as a whole: a layer's, or that of all layers.
type region struct {
	pool
	pageBytes int // of keys, and of values
}

func (m *Model) eachPage(page int32, visit func(b []byte)) {
	for i := range m.regions {
		r := &m.regions[i]
		at := int(page) * r.pageBytes
		visit(r.keys[at : at+r.pageBytes])
		visit(r.values[at : at+r.pageBytes])
	}
}
