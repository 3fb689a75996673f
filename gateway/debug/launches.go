package debug

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/internal/wire"
)

const (
	launchStepsDefault = 100
	// launchLimit is how long to wait for steps; an idle engine has none.
	launchLimit = 10 * time.Second
	launchFile  = "launches.json"
)

// launches answers with every kernel launch of the next steps, or of those after
// a request, as a file for Perfetto's viewer.
func (p *Pages) launches(query url.Values) (*Answer, error) {
	if query.Has("after") {
		trace := p.Kept.Launches(query.Get("after"))
		if trace == nil {
			return nil, &Refusal{Kind: NotFound, Message: "no launches were recorded after that request: with capture.arm_steps set, they are kept for the last few requests that missed a goal"}
		}
		return asFile(launchFile, trace), nil
	}
	steps := launchStepsDefault
	if text := query.Get("steps"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > wire.LaunchTraceStepsMax {
			return nil, &Refusal{Invalid, "steps", "steps must be a number from 1 to " + strconv.Itoa(wire.LaunchTraceStepsMax)}
		}
		steps = n
	}
	engine, ok := p.Engine.(wire.LaunchTracer)
	if !ok {
		return nil, &Refusal{Kind: Unavailable, Message: "this engine does not record single launches"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), launchLimit+time.Second)
	defer cancel()
	taken, err := engine.TraceLaunches(ctx, steps, launchLimit)
	if err != nil {
		return nil, err
	}
	return asFile(launchFile, capture.LaunchTrace(taken)), nil
}
