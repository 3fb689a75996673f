package gateway

import (
	"fmt"

	"github.com/forebay-io/forebay/internal/wire"
)

// grantTokens decides how many tokens each choice may generate after a prompt:
// as many as were asked for, but no more than the prompt's room, the class and
// admission's grant allow. An asked, class or grant of 0 sets no limit.
func grantTokens(asked, room, class, grant int) int {
	n := room
	for _, limit := range [...]int{asked, class, grant} {
		if limit > 0 {
			n = min(n, limit)
		}
	}
	return n
}

// checkRoom refuses an answer that was asked for and that m's context could
// hold, but the engine's memory never can. An answer that is too long for the
// context ends with it, as clients expect.
func checkRoom(asked, class int, p *wire.Prompt, m *wire.Model) error {
	if asked == 0 || grantTokens(asked, m.ContextTokens-p.Length(), class, 0) <= p.Room {
		return nil
	}
	return &failure{fault: faultTooLarge, param: "max_tokens", message: fmt.Sprintf("max_tokens is %d; after the prompt's %d tokens this engine's memory can never hold more than %d; lower max_tokens, or raise engine.kv_bytes",
		asked, p.Length(), p.Room)}
}
