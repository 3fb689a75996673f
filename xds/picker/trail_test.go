package picker

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTrailIsBounded: whatever comes, no more chunks are kept than the limit, and the
// newest are.
func TestTrailIsBounded(t *testing.T) {
	trail := newTrail(100)
	blocks := make([]uint64, 1000)
	for i := range 50 {
		text := []byte(strings.Repeat(fmt.Sprint(i), 30*chunkBytes))[:30*chunkBytes]
		chain := hashes("t", [][]byte{text})
		trail.learn(chain, len(text), 8000, blocks)
		if got, known := trail.find(chain); known != 30 || len(got) != 1000 {
			t.Fatalf("%d chunks known, %d blocks", known, len(got))
		}
		if len(trail.chunks) > 100 || len(trail.oldest) > 100 {
			t.Fatalf("%d chunks are kept", len(trail.chunks))
		}
	}
	if rate := trail.tokens(chunkBytes * 30); rate < 7000 || rate > 9000 {
		t.Errorf("30 KiB are %d tokens", rate)
	}
}

// TestTextInParts: how a body was cut on its way changes nothing of what is known of it.
func TestTextInParts(t *testing.T) {
	for _, body := range []string{chat(7, 5000), `{"model":"m","prompt":"` + strings.Repeat("word ", 900) + `"}`, strings.Repeat(`"message`, 1000), ""} {
		whole := promptOf([][]byte{[]byte(body)})
		want := hashes("t", whole)
		for _, size := range []int{1, 2, 7, 9, 10, 11, 100, 1023, 1024, 1025, 4000} {
			cut := promptOf(slices.Collect(slices.Chunk([]byte(body), size)))
			if got := bytes.Join(cut, nil); !bytes.Equal(got, bytes.Join(whole, nil)) {
				t.Fatalf("parts of %d bytes of %.20s: the prompt is %.20s", size, body, got)
			}
			if got := hashes("t", cut); !slices.Equal(got, want) {
				t.Errorf("parts of %d bytes of %.20s: other hashes", size, body)
			}
		}
	}
}
