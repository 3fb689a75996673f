//go:build amd64 && !purego

package kernels

import "testing"

// TestCodesUnpackAlikeInVectors: assembly makes the bytes and scales of a tile that plain Go makes.
func TestCodesUnpackAlikeInVectors(t *testing.T) {
	const blocks = 60
	for _, s := range []*integers{avx512Integers, avx2Integers} {
		if _, err := Lookup(s.name); err != nil {
			t.Log(err)
			continue
		}
		for typ, f := range s.unpackings {
			m := &Matrix{Type: typ, Rows: RowTile, Cols: blocks * 256, Data: randomBlocks(typ, RowTile*blocks)}
			got, want := make([][8]numbers, blocks), make([][8]numbers, blocks)
			f.unpackVectors(got, m, 0)
			(&integers{}).unpackTile(want, m, 0, RowTile)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%v in %s: block %d differs", typ, s.name, i)
				}
			}
		}
	}
}
