package cache

import (
	"fmt"
	"slices"
	"testing"
)

// Case D01.
func TestSpacesShareNoHashes(t *testing.T) {
	hashes := make(map[uint64]string)
	for _, space := range []string{"", "model a", "model b", "model a, q8 cache"} {
		p := newPool(t, Config{Pages: 4, PageTokens: 4, Space: space})
		for i, h := range p.hasher.Blocks("", count(12)) {
			at := fmt.Sprintf("block %d of space %q", i, space)
			if other, seen := hashes[h]; seen {
				t.Errorf("%s has the hash of %s", at, other)
			}
			hashes[h] = at
		}
	}
}

// TestHashesStayTheSame: machines of different versions compare hashes, so
// they must not change with the code.
func TestHashesStayTheSame(t *testing.T) {
	h, err := NewHasher("space", 4)
	if err != nil {
		t.Fatal(err)
	}
	want := []uint64{0x3a2e0e6ef07b68cb, 0xa30b23066d58d722}
	if got := h.Blocks("salt", count(11)); !slices.Equal(got, want) {
		t.Errorf("hashes %#x, want %#x", got, want)
	}
	if p := newPool(t, Config{Pages: 4, PageTokens: 4, Space: "space"}); p.Hasher() != h {
		t.Error("the pool computes other hashes than a hasher of its space")
	}
}
