package step

import (
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/internal/cost"
)

// Admission gives the engine short prompts that together have room in the next
// step (cost.Room). The composer must then compute each of them whole, beside any
// rows, however dear.
func TestPromptsThatHaveRoomAreComputedInOneStep(t *testing.T) {
	rnd := rand.New(rand.NewPCG(10, 1))
	for range 20_000 {
		price, limits := randomCost(rnd), randomLimits(rnd)
		var candidates []Candidate
		var rows cost.Load
		for range rnd.IntN(40) {
			s := Candidate{Pending: 1, Context: rnd.IntN(2000), Decode: true, Arrival: uint64(len(candidates)), Index: len(candidates)}
			rows.AddRow(s.Context)
			candidates = append(candidates, s)
		}
		limits.RowsMax = max(limits.RowsMax, 1000)
		limits.TokensMax = max(limits.TokensMax, 2*len(candidates)+2)
		room, decodes := limits.Tokens(&price, rows), len(candidates)
		for left := room; left > 0 && len(candidates) < decodes+20; {
			n := 1 + rnd.IntN(left)
			left -= n
			candidates = append(candidates, Candidate{Pending: n, Key: rnd.Int64N(100), Arrival: uint64(len(candidates)), Index: len(candidates)})
		}
		pending := map[int]int{}
		for _, s := range candidates {
			pending[s.Index] = s.Pending
		}
		c := Composer{Limits: limits}
		for _, share := range c.Compose(nil, candidates, &price, 0) {
			pending[share.Index] -= share.Tokens
		}
		for index, n := range pending {
			// A prompt's own attention may move the border of the room by a token.
			if n > 1 {
				t.Fatalf("%+v, %+v: room for %d tokens beside %d rows, but %d of candidate %d are left out", price, limits, room, decodes, n, index)
			}
		}
	}
}
