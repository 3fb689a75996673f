package gateway

import (
	"context"

	"github.com/forebay-io/forebay/internal/wire"
)

// Preview renders and tokenizes the prompt of a request that some replica will serve,
// for those who choose which. It is the path of decode and prepare, without a client.
func (g *Gateway) Preview(ctx context.Context, path string, body []byte, tenant string) (*wire.Prompt, error) {
	state := g.engine.State()
	if state.Err != nil {
		return nil, state.Err
	}
	for i := range g.routes {
		r := &g.routes[i]
		if r.path != path || r.kind != generateRoute {
			continue
		}
		c, err := r.decode(body, &g.cfg.Limits, &state.Model)
		switch {
		case err != nil:
			return nil, err
		case c.model != state.Model.ID:
			return nil, errModelNotFound(c.model)
		case len(c.prompts) != 1:
			return nil, failed(faultInvalid, "a request of several prompts has no one beginning")
		}
		request := &c.prompts[0]
		request.ID, request.Salt = newID(), tenant
		if t := g.identity.Policy().Named(tenant); t != nil {
			request.Salt = t.Salt()
		}
		request.Grammar = nil // it changes no token of the prompt
		return g.engine.Prepare(ctx, request)
	}
	return nil, failed(faultPathNotFound, "there are no prompts at "+path)
}
