package gateway

import (
	"context"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

func TestGrantTokens(t *testing.T) {
	for _, c := range []struct{ asked, room, class, grant, want int }{
		{0, 100, 0, 0, 100}, {50, 100, 0, 0, 50}, {500, 100, 0, 0, 100},
		{0, 100, 30, 0, 30}, {50, 100, 30, 0, 30}, {20, 100, 30, 0, 20}, {0, 100, 300, 0, 100},
		{50, 100, 30, 10, 10}, {5, 100, 30, 10, 5}, {0, 8, 30, 10, 8},
	} {
		if got := grantTokens(c.asked, c.room, c.class, c.grant); got != c.want {
			t.Errorf("asked %d, room %d, class %d, grant %d: %d, want %d", c.asked, c.room, c.class, c.grant, got, c.want)
		}
	}
}

// smallPool is an engine whose pages hold less than its context.
type smallPool struct {
	wire.Engine
	tokens int
}

func (e smallPool) Prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, error) {
	p, err := e.Engine.Prepare(ctx, r)
	if err == nil {
		p.Room = min(p.Room, e.tokens-len(p.Tokens))
	}
	return p, err
}

// What the context cuts is served; what the engine's memory can never hold is
// refused where it was asked for, and cut where it was not.
func TestAnswersBeyondThePool(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Endless: true})
	r.gw.engine = smallPool{r.fake, 40}
	prompt := len("user: hi\nassistant: ")
	if tokens := usedTokens(t, r.chat("")); tokens != 40-prompt {
		t.Errorf("%d tokens where nobody asked for more than there is room for", tokens)
	}
	if tokens := usedTokens(t, r.chat(`"max_tokens":20`)); tokens != 20 {
		t.Errorf("%d tokens of 20", tokens)
	}
	for _, field := range []string{`"max_tokens":21`, `"max_completion_tokens":100000`} {
		resp := r.chat(field)
		e, _ := object(t, resp.body)["error"].(map[string]any)
		if resp.status != 400 || e["code"] != "request_cannot_fit" || e["param"] != "max_tokens" || !strings.Contains(resp.body, "more than 20") {
			t.Errorf("%s: %d %s", field, resp.status, resp.body)
		}
	}
}

func usedTokens(t *testing.T, resp response) int {
	t.Helper()
	if resp.status != 200 {
		t.Fatalf("%d %s", resp.status, resp.body)
	}
	return int(object(t, resp.body)["usage"].(map[string]any)["completion_tokens"].(float64))
}
