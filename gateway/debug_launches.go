package gateway

import (
	"context"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/internal/wire"
)

// launchesPath takes down the single kernel launches of the next steps.
const launchesPath = "/debug/launches"

const (
	launchStepsDefault = 100
	// launchLimit is how long a capture waits for steps; an idle engine has none.
	launchLimit = 10 * time.Second
)

// launches answers with a file for Perfetto's viewer.
func (d *debugPages) launches(c *fasthttp.RequestCtx) *failure {
	if args := c.QueryArgs(); args.Has("after") {
		return d.launchesAfter(c, string(args.Peek("after")))
	}
	steps := launchStepsDefault
	if text := string(c.QueryArgs().Peek("steps")); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > wire.CaptureStepsMax {
			return &failure{fault: faultInvalid, param: "steps", message: "steps must be a number from 1 to " + strconv.Itoa(wire.CaptureStepsMax)}
		}
		steps = n
	}
	engine, ok := d.g.engine.(wire.Capturer)
	if !ok {
		return failed(faultUnavailable, "this engine does not tell of single launches")
	}
	ctx, cancel := context.WithTimeout(context.Background(), launchLimit+time.Second)
	defer cancel()
	taken, err := engine.Capture(ctx, steps, launchLimit)
	if err != nil {
		return asFailure(err)
	}
	c.Response.Header.Set("Content-Disposition", `attachment; filename="launches.json"`)
	writeJSON(c, fasthttp.StatusOK, capture.LaunchTrace(taken))
	return nil
}

// launchesAfter answers with what was taken down after the request of that id
// missed a goal, or after the last one that did for "".
func (d *debugPages) launchesAfter(c *fasthttp.RequestCtx, id string) *failure {
	trace := d.g.capture.Launches(id)
	if trace == nil {
		return failed(faultPathNotFound, "no launches were taken down after that request: only those after the last few requests that missed a goal are kept, where capture.arm_steps says so")
	}
	c.Response.Header.Set("Content-Disposition", `attachment; filename="launches.json"`)
	writeJSON(c, fasthttp.StatusOK, trace)
	return nil
}
