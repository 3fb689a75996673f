package model

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// embed computes a text's vector in pieces of these sizes, the last of which is repeated.
func embed(m *Model, ids []int32, pieces ...int) []float32 {
	pool := m.NewPooler()
	pages := firstPages((len(ids)-1)/m.Options().PageTokens + 1)
	for start := 0; start < len(ids); {
		n := min(pieces[0], len(ids)-start)
		if len(pieces) > 1 {
			pieces = pieces[1:]
		}
		rows := pool.Rows(start, n, start+n == len(ids))
		pool.Add(m.Forward([]Chunk{{Tokens: ids[start : start+n], Start: start, Pages: pages, Logits: rows}}))
		start += n
	}
	return pool.Vector()
}

// embedders are the reference files that have a vector.
func embedders(t *testing.T) (stems []string) {
	folder := sharedPath(t, "conformance", "arch2")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if stem, ok := strings.CutSuffix(e.Name(), ".vector.f32"); ok {
			stems = append(stems, folder+"/"+stem)
		}
	}
	if len(stems) < 5 {
		t.Fatalf("%d reference vectors", len(stems))
	}
	return stems
}

// readIDs are the tokens of a reference file.
func readIDs(t *testing.T, stem string) []int32 {
	t.Helper()
	var want struct{ IDs []int32 }
	text, err := os.ReadFile(sharedPath(t, "conformance", "arch2", stem+".json"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return want.IDs
}

// TestEmbedders: vectors as the reference's, by every kernel set that does not round; and
// for causal models the same bits in any pieces.
func TestEmbedders(t *testing.T) {
	for _, stem := range embedders(t) {
		t.Run(stem[strings.LastIndex(stem, "/")+1:], func(t *testing.T) {
			f := openFile(t, stem+".gguf")
			ids := readIDs(t, stem[strings.LastIndex(stem, "/")+1:])
			vector := readFloats(t, stem+".vector.f32")
			for _, set := range kernels.Sets() {
				team := newTeam(t, 2)
				m := load(t, f, set, team, Options{BatchTokensMax: 512})
				got := embed(m, ids, len(ids))
				if e := nmse(got, vector); !(e < 1e-5) {
					t.Errorf("%s: NMSE %g", set.Name, e)
				} else {
					t.Logf("%s: NMSE %.2g", set.Name, e)
				}
				for seed := range uint64(5) {
					rnd := rand.New(rand.NewPCG(seed, 1))
					var pieces []int
					for range ids {
						pieces = append(pieces, 1+rnd.IntN(40))
					}
					if !m.config.Encoder.On && !slices.Equal(embed(m, ids, pieces...), got) {
						t.Errorf("%s: other bits in the pieces %v", set.Name, pieces)
					}
				}
			}
		})
	}
}
