package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache"
	"github.com/forebay-io/forebay/internal/wire"
)

func pinFor(d time.Duration) wire.Pin { return wire.Pin{Asked: true, For: d, TokensMax: 1000} }

func TestPinnedPromptsOutliveOthers(t *testing.T) {
	for name, setup := range map[string]labSetup{
		"pages": {pages: 64}, "windows": {pages: 64, windows: cache.Windows{Tokens: 40, Pages: 1}}, "states": {pages: 64, states: 10},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, setup)
			storm := func(seed uint64) {
				t.Helper()
				var qs []question
				for i := range uint64(12) {
					qs = append(qs, question{id: fmt.Sprint("storm", seed+i), tokens: prompt(seed+i, 200), options: greedy(3)})
				}
				for i, a := range b.askAll(qs) {
					mustEnd(t, qs[i], a)
				}
			}
			q := question{id: "cold", tokens: prompt(1, 100), options: greedy(4)}
			q.pin = pinFor(time.Hour)
			cold := b.ask(q)
			mustEnd(t, q, cold)
			if u := cold.end.Usage; u.Pinned != 96 || u.PinRefused != wire.PinDone {
				t.Fatalf("usage %+v of a prompt that is pinned", u)
			}
			storm(100)
			q.id, q.pin = "warm", wire.Pin{}
			warm := b.ask(q)
			if u := warm.end.Usage; u.Cached != 96 || u.Pinned != 0 || warm.texts[0] != cold.texts[0] {
				t.Errorf("after a storm: usage %+v, and the text is the same: %v", u, warm.texts[0] == cold.texts[0])
			}
			if !slices.Equal(b.logitsBits("warm", 0), b.logitsBits("cold", 0)) {
				t.Error("the logits differ from those of the prompt that was computed whole")
			}
			h, err := b.Holdings(context.Background(), 10)
			if err != nil || len(h.Pins) != 1 || h.Pins[0].Tokens != 96 || h.Pins[0].Left < 59*time.Minute || !slices.ContainsFunc(h.Prefixes, func(p wire.HeldPrefix) bool { return p.Hash == h.Pins[0].Hash && p.Pinned }) {
				t.Errorf("holdings %+v, %v", h, err)
			}
			b.mustIdle()
			if s := b.State(); s.PagesPinned == 0 || s.PagesPinned != s.PagesUsed || s.StatesPinned != min(setup.states, 1) {
				t.Errorf("%d pages are pinned of %d used, and %d states", s.PagesPinned, s.PagesUsed, s.StatesPinned)
			}
			q.id, q.pin = "unpin", wire.Pin{Asked: true}
			b.ask(q)
			storm(200)
			q.id, q.pin = "after", wire.Pin{}
			if u := b.ask(q).end.Usage; u.Cached != 0 {
				t.Errorf("%d tokens outlive the end of their pin and a storm", u.Cached)
			}
			b.mustIdle()
			if s := b.State(); s.PagesUsed != 0 || s.StatesPinned != 0 {
				t.Errorf("%d pages are used by nobody, %d states are pinned by none", s.PagesUsed, s.StatesPinned)
			}
		})
	}
}

func TestPinsEndByThemselves(t *testing.T) {
	b := newLab(t, labSetup{pages: 64})
	q := question{id: "a", tokens: prompt(1, 100), options: greedy(1)}
	q.pin = pinFor(time.Millisecond)
	mustEnd(t, q, b.ask(q))
	for deadline := time.Now().Add(patience); b.State().PagesUsed > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a pin of a millisecond still holds %d pages", b.State().PagesPinned)
		}
	}
}

// A prompt that needs all pages is computed, whatever is pinned, and the same as ever.
func TestPinsNeverStarveThePool(t *testing.T) {
	for name, states := range map[string]int{"pages": 0, "states": 8} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, labSetup{pages: 64, states: states, cfg: Config{PinnedShare: 0.5}})
			for i := range uint64(4) {
				q := question{id: fmt.Sprint("pin", i), tokens: prompt(i, 100), options: greedy(1)}
				q.pin = pinFor(time.Hour)
				mustEnd(t, q, b.ask(q))
			}
			giant := question{id: "giant", tokens: prompt(50, 1000), options: greedy(20)}
			small := question{id: "small", tokens: prompt(51, 100), options: greedy(20)}
			for i, a := range b.askAll([]question{giant, small}) {
				mustEnd(t, []question{giant, small}[i], a)
			}
			if s := b.State(); s.PinsYielded == 0 {
				t.Errorf("nothing was given back: %+v", s.Pages)
			}
			alone := newLab(t, labSetup{pages: 64, states: states})
			alone.ask(giant)
			if !slices.Equal(alone.logitsBits("giant", 0), b.logitsBits("giant", 0)) {
				t.Error("the answer differs from that without pins")
			}
		})
	}
}

func TestPinsThatAreRefused(t *testing.T) {
	type pinned struct {
		name   string
		tokens []int32
		most   int
		want   int
		why    wire.PinRefusal
	}
	check := func(t *testing.T, b *lab, all []pinned) {
		for _, c := range all {
			q := question{id: c.name, tokens: c.tokens, options: greedy(1)}
			q.pin = wire.Pin{Asked: true, For: time.Hour, TokensMax: c.most}
			a := b.ask(q)
			mustEnd(t, q, a)
			if u := a.end.Usage; u.Pinned != c.want || u.PinRefused != c.why {
				t.Errorf("%s: %d tokens, %v", c.name, u.Pinned, u.PinRefused)
			}
		}
	}
	check(t, newLab(t, labSetup{pages: 64, cfg: Config{PinnedShare: 0.25, PinsMax: 2}}), []pinned{
		{"short", prompt(1, 16), 1000, 0, wire.PinShort},
		{"over the tenant's", prompt(2, 100), 95, 0, wire.PinTenant},
		{"over all", prompt(3, 300), 1000, 0, wire.PinMemory},
		{"one", prompt(4, 40), 1000, 32, wire.PinDone},
		{"two", prompt(5, 40), 1000, 32, wire.PinDone},
		{"three", prompt(6, 40), 1000, 0, wire.PinCount},
		{"one again", prompt(4, 40), 1000, 32, wire.PinDone},
	})
	check(t, newLab(t, labSetup{pages: 64, states: 8, cfg: Config{PinnedShare: 0.25}}), []pinned{
		{"over the tenant's, with its state", prompt(1, 100), 96 + 4*16 - 1, 0, wire.PinTenant},
		{"one", prompt(1, 100), 96 + 4*16, 96, wire.PinDone},
		{"two", prompt(2, 40), 1000, 32, wire.PinDone},
		{"a third state of eight", prompt(3, 40), 1000, 0, wire.PinMemory},
		{"two again", prompt(2, 40), 1000, 32, wire.PinDone},
	})
	check(t, newLab(t, labSetup{pages: 64, states: 1, cfg: Config{PinnedShare: 0.9}}), []pinned{
		{"no room for a checkpoint", prompt(1, 100), 1000, 0, wire.PinMemory},
	})
}
