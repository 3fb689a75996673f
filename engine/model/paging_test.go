package model

import (
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// layered has layers with windows and a layer that sees everything after every so many; each
// kind has its own number of heads.
func layered(layers, every, windowHeads, heads int) *Config {
	c := &Config{ContextTokens: 1 << 16}
	for i := range layers {
		l := Layer{KVHeads: windowHeads, HeadDim: 64, KeysOf: i, WindowTokens: 512}
		if (i+1)%every == 0 {
			l.KVHeads, l.WindowTokens = heads, 0
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

func pagingOf(c *Config) Paging {
	return c.Paging(&Options{ContextTokens: c.ContextTokens, PageTokens: 16, KVType: kernels.KVF16, Windows: true})
}

// TestPagingLaysLayersApart: in each table's page every layer has bytes of its own, within the
// page; and a window takes little more than its layers.
func TestPagingLaysLayersApart(t *testing.T) {
	for _, c := range []*Config{layered(34, 6, 4, 4), layered(24, 2, 8, 8), layered(62, 6, 16, 16), layered(30, 6, 8, 2), layered(35, 5, 1, 2), layered(5, 5, 7, 3)} {
		p := pagingOf(c)
		used, all := map[[2]int]int{}, 0
		for i := range c.Layers {
			l := c.Layers[i].kvLayout(kernels.KVF16, 16)
			if windowed := c.Layers[i].WindowTokens > 0; windowed != (p.tables[i] > 0) || p.tables[i] > p.WindowPages {
				t.Fatalf("layer %d is in table %d of %d", i, p.tables[i], p.WindowPages)
			} else if windowed {
				all += l.PageBytes()
			}
			for at := p.offsets[i]; at < p.offsets[i]+l.PageBytes(); at += 64 {
				if other, taken := used[[2]int{p.tables[i], at}]; taken {
					t.Fatalf("layers %d and %d share bytes", i, other)
				}
				used[[2]int{p.tables[i], at}] = i
			}
			if 2*(p.offsets[i]+l.PageBytes()) > p.PageBytes {
				t.Fatalf("layer %d ends at %d in a page of %d", i, p.offsets[i]+l.PageBytes(), p.PageBytes/2)
			}
		}
		if room := p.WindowPages * p.PageBytes / 2; 100*room > 130*all || p.WindowTokens != 512 {
			t.Errorf("%d layers: windows of %d bytes take %d", len(c.Layers), all, room)
		}
	}
}

// TestPagingKeepsTogether what nothing is won by, or what others still see.
func TestPagingKeepsTogether(t *testing.T) {
	short := layered(12, 6, 4, 4)
	short.ContextTokens = 512
	allWindows := layered(12, 13, 4, 4)
	readers := layered(12, 2, 4, 4)
	for i := range readers.Layers {
		readers.Layers[i].KeysOf = 0 // layers that see everything read one with a window
	}
	encoder := layered(12, 6, 4, 4)
	encoder.Encoder.On = true
	for name, c := range map[string]*Config{"a short context": short, "windows alone": allWindows, "shared keys": readers, "an encoder": encoder} {
		if p := pagingOf(c); p.WindowPages != 0 || p.PageBytes != c.PageBytes(kernels.KVF16, 16) {
			t.Errorf("%s: windows of %d pages", name, p.WindowPages)
		}
	}
	if p := layered(12, 6, 4, 4).Paging(&Options{ContextTokens: 4096, PageTokens: 16}); p.WindowPages != 0 {
		t.Error("windows are apart though nobody asked")
	}
}
