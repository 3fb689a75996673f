package engine

import (
	"fmt"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

// observed is all of an answer's work that a tenant could time, or is told: what Prepare
// says, the steps, and the tokens computed in them.
type observed struct {
	room, cached, computed, steps, chunks, prefill int
}

// timed asks and observes, on an engine without other work.
func (b *lab) timed(q question) observed {
	b.t.Helper()
	p, err := b.Prepare(b.t.Context(), &wire.Request{ID: q.id, Tokens: q.tokens, Salt: q.salt})
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.ask(q)
	mustEnd(b.t, q, a)
	u, at := a.end.Usage, a.end.Timings
	if p.CachedTokens != u.Cached {
		b.t.Errorf("%s: %d tokens were cached by the word of Prepare, %d by that of the usage", q.id, p.CachedTokens, u.Cached)
	}
	return observed{p.Room, u.Cached, u.Computed, at.Steps, at.PrefillChunks, at.PrefillTokens}
}

// Case D04: one tenant cannot learn by timing what another has asked. A spy asks for texts
// that the victim has asked, and for texts that nobody has. What its requests cost is equal
// to the token, so no clock tells the two apart, also where prompts are pinned. The same
// experiment under the victim's own salt tells them apart each time.
func TestTimingTellsNoTenantWhatAnotherAsked(t *testing.T) {
	const rounds, tokens = 12, 200
	for _, c := range []struct {
		name, spy string
		pinned    bool
		differ    bool
	}{{"another tenant", "spy", false, false}, {"another tenant, pinned", "spy", true, false}, {"the control: the same salt", "victim", false, true}} {
		b := newLab(t, labSetup{pages: 2048, cfg: Config{BatchTokensMax: 64}})
		for round := range uint64(rounds) {
			secret := question{id: fmt.Sprint("secret", round), tokens: prompt(round, tokens), options: greedy(2), salt: "victim"}
			if c.pinned {
				secret.pin = pinFor(1 << 40)
			}
			mustEnd(t, secret, b.ask(secret))
			hit := b.timed(question{id: fmt.Sprint("hit", round), tokens: prompt(round, tokens), options: greedy(2), salt: c.spy})
			miss := b.timed(question{id: fmt.Sprint("miss", round), tokens: prompt(1000+round, tokens), options: greedy(2), salt: c.spy})
			if (hit != miss) != c.differ {
				t.Errorf("%s, round %d: asked before %+v, never asked %+v", c.name, round, hit, miss)
			}
		}
	}
}

// A prompt of 4,096 tokens that was computed before costs at most a twentieth of its first
// time, by the tokens computed and the steps.
func TestWarmPromptsCostLittle(t *testing.T) {
	b := newLab(t, labSetup{pages: 600, cfg: Config{ContextTokens: 8192}})
	q := question{id: "cold", tokens: prompt(1, 4096), options: greedy(1)}
	cold := b.timed(q)
	q.id = "warm"
	warm := b.timed(q)
	if cold.prefill != 4096 || 20*warm.prefill > cold.prefill || warm.computed != 16 || 2*warm.steps > cold.steps {
		t.Errorf("cold %+v, warm %+v", cold, warm)
	}
}
