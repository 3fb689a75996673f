package cost

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestChunksThatFit(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for range 20_000 {
		c := randomCost(r)
		context, ns := r.IntN(10_000), 1e6*r.Float64()
		n := c.TokensIn(ns, context)
		if n == TokensMost {
			continue
		}
		if got := c.ChunkNS(n, context); got > ns*1.000001 {
			t.Fatalf("%+v: %d tokens after %d take %.3f, over %.3f", c, n, context, got, ns)
		}
		if more := c.ChunkNS(n+1, context); more < ns*0.999999 {
			t.Fatalf("%+v: %d tokens after %d take %.3f, which fit %.3f too", c, n+1, context, more, ns)
		}
	}
	if n := smol.TokensIn(-5, 10); n != 0 {
		t.Errorf("%d tokens fit into no time", n)
	}
	if got, want := smol.Prefill(1000, 200, 100), smol.Step(Load{PrefillTokens: 1000, PrefillContext: 1000 * 700})+9*time.Duration(smol.Base); got != want {
		t.Errorf("ten chunks take %v; want %v", got, want)
	}
	if got, want := smol.Decode(100, 4), time.Duration(smol.Base/4+smol.RowNS(100)); got != want {
		t.Errorf("a decode of four takes %v; want %v", got, want)
	}
}

func randomCost(r *rand.Rand) Cost {
	return Cost{Base: float64(1 + r.IntN(20_000)), PrefillToken: float64(r.IntN(500)), PrefillContext: r.Float64() / 2, DecodeRow: float64(r.IntN(3000)), DecodeContext: r.Float64()}
}
