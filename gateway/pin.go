package gateway

import (
	"fmt"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

// pinHeader asks that the prompt's keys and values stay in memory: a time such as 30m; 0
// ends that.
const pinHeader = "X-Forebay-Pin"

// readPin reads what the client wants to be pinned, and refuses what the tenant may not.
func (x *exchange) readPin(tenant *admission.Tenant, c *call) error {
	text := string(x.http.Header(pinHeader))
	if text == "" {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &failure{fault: faultInvalid, param: pinHeader, message: fmt.Sprintf(format, args...)}
	}
	most := x.g.cfg.Limits.PinMax
	keep, err := time.ParseDuration(text)
	switch {
	case err != nil || keep < 0:
		return refuse("%s must be a time such as 30m or 2h, or 0 to end it, not %.32q", pinHeader, text)
	case keep > most:
		return refuse("%s is %v; the longest time is %v (gateway.limits.pin_max)", pinHeader, keep, most)
	case len(c.prompts) > 1:
		return refuse("%s takes a request with one prompt; this one has %d", pinHeader, len(c.prompts))
	case x.engine.State().Model.Relays:
		return refuse("%s has no effect on another server; leave it out", pinHeader)
	case c.options.Embed:
		return refuse("%s has no effect on embeddings; leave it out", pinHeader)
	case tenant.PinnedTokensMax == 0:
		return failed(faultForbidden, fmt.Sprintf("tenant %s may pin nothing; admission.tenants[].pinned_tokens_max says how many tokens", tenant.Name))
	}
	c.pin = wire.Pin{Asked: true, For: keep, TokensMax: tenant.PinnedTokensMax}
	return nil
}
