package gateway

import (
	"cmp"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

// refuseUnprepared refuses a request before its prompt is rendered and tokenized, where
// admission knows that it would refuse it afterwards. What is refused for another reason
// first, or served elsewhere, is prepared.
func (x *exchange) refuseUnprepared(tenant *admission.Tenant, class *admission.Class, c *call) error {
	g, bytes := x.g, x.tellingBytes(c)
	if bytes == 0 || g.siblings != nil || class.PromptTokensMax > 0 || g.budget != nil && len(x.scopes(tenant, c.user)) > 0 {
		return nil
	}
	most := cmp.Or(c.options.MaxTokens, class.OutputTokensMax, x.engine.State().Model.ContextTokens)
	d := admission.Demand{
		ID: x.record.ID, Tenant: x.record.Tenant, Class: x.record.Class, Route: x.record.Route, Group: x.record.Group, Form: c.asked.Grammar, Sequences: c.options.N,
		DecodeTokens: most * c.options.N, Age: x.age(), BodyBytes: bytes, Bytes: c.bodyBytes, Within: x.within(), User: c.user, Retry: x.isRetry(),
	}
	err := g.admission.Refuse(&d)
	x.draw = d.Draw
	if err != nil {
		x.record.Prepared = wire.Monotonic()
		x.record.Reserved = x.record.Prepared
	}
	return err
}

// tellingBytes is the size of the body, if that tells something of the prompt's tokens,
// and else 0.
func (x *exchange) tellingBytes(c *call) int {
	if x.record.Prompts != 1 || c.options.PromptLogprobs || c.options.Embed || c.promptOnly {
		return 0
	}
	return int(x.record.BytesIn)
}
