package engine

import (
	"testing"

	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// An echoed prompt may end within a character, which the answer then completes.
func TestAnswerCompletesThePromptsCharacter(t *testing.T) {
	const parrot = "\U0001F99C"
	for _, echo := range []bool{false, true} {
		var forced []int32
		b := newLab(t, labSetup{onLogits: func(s *sequence, x []float32) {
			if s.generated < len(forced) {
				x[forced[s.generated]] = 1e6
			}
		}})
		ids := b.loaded.tokenizer.Encode(nil, parrot, tokenizer.EncodeOptions{})
		if len(ids) < 3 {
			t.Fatalf("%d tokens: too few to cut", len(ids))
		}
		for cut := 1; cut < len(ids); cut++ {
			forced = append(ids[cut:len(ids):len(ids)], b.loaded.tokenizer.Encode(nil, "a", tokenizer.EncodeOptions{})...)
			p, err := b.Prepare(t.Context(), &wire.Request{Tokens: ids[:cut]})
			if err != nil {
				t.Fatal(err)
			}
			notify := make(chan struct{}, 1)
			o := wire.Options{N: 2, MaxTokens: len(forced), IgnoreEOS: true, Logprobs: true, Echo: echo, Stop: []string{parrot}}
			a := b.read(b.Generate(&wire.Generation{ID: "q", Prompt: p, Options: o, Notify: notify}), notify, o.N)
			want := parrot + "a"
			if !echo {
				want = ""
				for range ids[cut:] { // each is one byte that continues nothing
					want += "\uFFFD"
				}
				want += "a"
			}
			for i := range o.N {
				if a.texts[i] != want || len(a.logprobs[i]) != len(forced) {
					t.Errorf("echo %v, cut at %d: %q with %d log-probabilities, want %q with %d", echo, cut, a.texts[i], len(a.logprobs[i]), want, len(forced))
				}
			}
		}
		b.mustIdle()
	}
}
