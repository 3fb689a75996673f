package kernels

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

var rewrite = flag.Bool("rewrite", false, "write golden files anew")

// layoutHashes packs random matrices of every type with every set of this machine.
func layoutHashes() map[string]string {
	hashes := map[string]string{}
	for _, set := range Sets() {
		for typ := range typeTable {
			const rows, cols = 37, 768 // the last tile is not full
			raw := make([]byte, rows*typ.Bytes(cols))
			state := uint32(typ) + 1
			for i := range raw {
				state = state*1664525 + 1013904223
				raw[i] = byte(state >> 24)
			}
			m := set.Pack(typ, rows, cols, raw)
			hashes[set.Name+" "+typ.String()] = fmt.Sprintf("%016x %d", xxh3.Hash(m.Data), len(m.Data))
		}
	}
	return hashes
}

// TestLayoutVersion: no layout changes under the same LayoutVersion, not even with -rewrite,
// since kept weights would be read wrongly.
func TestLayoutVersion(t *testing.T) {
	const path = "testdata/layouts.txt"
	text, err := os.ReadFile(path)
	if err != nil && !*rewrite {
		t.Fatal(err)
	}
	first, lines, _ := strings.Cut(string(text), "\n")
	version := fmt.Sprintf("LayoutVersion %d", LayoutVersion)
	known := map[string]string{} // of other machines' sets too
	if first == version {
		for line := range strings.Lines(lines) {
			name, hash, _ := strings.Cut(strings.TrimSpace(line), ": ")
			known[name] = hash
		}
	} else if !*rewrite {
		t.Fatalf("%s is of %q, want %q; run the test with -rewrite", path, first, version)
	}
	for name, hash := range layoutHashes() {
		switch was, ok := known[name]; {
		case ok && was != hash:
			t.Errorf("%s is packed in another way: raise LayoutVersion, then run this test with -rewrite", name)
		case !ok && !*rewrite:
			t.Errorf("%s is not in %s: run this test with -rewrite", name, path)
		}
		known[name] = hash
	}
	if *rewrite && !t.Failed() {
		var b strings.Builder
		fmt.Fprintln(&b, version)
		for _, name := range slices.Sorted(maps.Keys(known)) {
			fmt.Fprintf(&b, "%s: %s\n", name, known[name])
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPackedBytes(t *testing.T) {
	for _, set := range Sets() {
		for typ := range typeTable {
			for _, rows := range []int{1, RowTile, RowTile + 1, 5 * RowTile} {
				m := set.Pack(typ, rows, 512, make([]byte, rows*typ.Bytes(512)))
				if got := set.PackedBytes(typ, rows, 512); got != len(m.Data) {
					t.Errorf("%s %v: %d rows take %d bytes, packed %d", set.Name, typ, rows, got, len(m.Data))
				}
			}
		}
	}
}
