package kernels

import "testing"

// TestImages: fields fill their image, which is little larger than the stored block.
func TestImages(t *testing.T) {
	for name, images := range map[string]layout{"floatTiles": floatTiles, "byteTiles": byteTiles} {
		for typ, im := range images {
			sum := 0
			for _, f := range im.head {
				sum += f.bytes
			}
			for _, f := range im.block {
				sum += im.columns / 32 * f.bytes
			}
			if sum != im.bytes || im.bytes > imageMax || im.columns != typ.BlockLen() {
				t.Errorf("%s: %v: fields of %d bytes in an image of %d for %d columns", name, typ, sum, im.bytes, im.columns)
			}
			if stored := typ.BlockBytes(); 100*im.bytes > 106*stored || im.row == nil && im.bytes != stored {
				t.Errorf("%s: %v: an image of %d bytes for %d stored", name, typ, im.bytes, stored)
			}
		}
		for typ, info := range typeTable {
			if _, ok := images[typ]; ok != (info.blockLen > 1 && !typ.Coded()) {
				t.Errorf("%s: %v: has an image: %v", name, typ, ok)
			}
		}
	}
}

// TestTransposeBits moves every single bit.
func TestTransposeBits(t *testing.T) {
	for r := range 8 {
		for c := range 8 {
			if got := transposeBits(1 << (8*r + c)); got != 1<<(8*c+r) {
				t.Errorf("bit %d of byte %d becomes %#x", c, r, got)
			}
		}
	}
}
