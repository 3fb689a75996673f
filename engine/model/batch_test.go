package model

import (
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// TestTilesCoverTheRows: every row is in one tile, no tile reaches from one
// sequence into another, and those with most work come first.
func TestTilesCoverTheRows(t *testing.T) {
	m := load(t, parseTiny(t, odd), kernels.Best(), newTeam(t, 1), Options{})
	r := rand.New(rand.NewPCG(1, 1))
	largest := 0
	for range 200 {
		var chunks []Chunk
		owner := []int{}
		for n := 1 + r.IntN(5); len(chunks) < n; {
			pages := firstPages(m.Options().Pages)
			s := Chunk{Tokens: make([]int32, 1+r.IntN(40)), Start: r.IntN(10), Pages: pages}
			for range s.Tokens {
				owner = append(owner, len(chunks))
			}
			chunks = append(chunks, s)
		}
		m.pass.gather(chunks)
		seen := make([]int, m.pass.rows)
		for i, tile := range m.pass.batch.tiles {
			largest = max(largest, tile.rows)
			for row := tile.row; row < tile.row+tile.rows; row++ {
				seen[row]++
				if owner[row] != owner[tile.row] {
					t.Fatalf("tile %+v is of chunks %d and %d", tile, owner[tile.row], owner[row])
				}
			}
			if i > 0 && tile.keys > m.pass.batch.tiles[i-1].keys {
				t.Fatalf("tile %+v comes after %+v", tile, m.pass.batch.tiles[i-1])
			}
		}
		for row, n := range seen {
			if n != 1 {
				t.Fatalf("row %d is in %d tiles", row, n)
			}
		}
	}
	if largest != m.tileRows {
		t.Errorf("the largest tile has %d rows, want %d", largest, m.tileRows)
	}
}
