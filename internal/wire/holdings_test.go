package wire

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pagedEngine says how many rows it was asked for; asked for one, it waits until nobody waits
// for it.
type pagedEngine struct {
	stillEngine
	asked chan int
}

func (e pagedEngine) Holdings(ctx context.Context, most int) (*Holdings, error) {
	e.asked <- most
	if most == 1 {
		<-ctx.Done()
		e.asked <- 0
	}
	return sampleHoldings(), nil
}

func sampleHoldings() *Holdings {
	return &Holdings{
		Prefixes: []HeldPrefix{{Salt: "s", Hash: 1 << 63, Tokens: 1, Uses: 2, Pinned: true}}, Salts: []SaltPages{{Salt: "t", Used: 3, Cached: 4, Pinned: 5}},
		Pins: []HeldPin{{Salt: "s", Hash: 1, Tokens: 6, Left: 7}},
	}
}

func TestHoldingsCross(t *testing.T) {
	engine := pagedEngine{stillEngine{state: new(State)}, make(chan int, 2)}
	client, _ := socketPair(t, engine)
	got, err := client.Holdings(t.Context(), 1<<30)
	if err != nil || !cmp.Equal(got, sampleHoldings()) || <-engine.asked != HoldingsMax {
		t.Errorf("got %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-engine.asked; cancel() }()
	if _, err := client.Holdings(ctx, 1); err == nil || AsError(err).Kind != Canceled {
		t.Errorf("an abandoned question: %v", err)
	}
	if <-engine.asked != 0 {
		t.Error("the engine did not hear of it")
	}
	other, _ := socketPair(t, stillEngine{state: new(State)})
	if _, err := other.Holdings(t.Context(), 7); err == nil || AsError(err).Kind != Invalid {
		t.Errorf("an engine that cannot: %v", err)
	}
}
