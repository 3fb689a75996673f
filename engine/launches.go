package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
)

// wireClasses translates the model's kernel classes to the contract's.
var wireClasses = [model.KernelClassCount]wire.KernelClass{
	model.KernelEmbed:            wire.KernelEmbed,
	model.KernelNormRope:         wire.KernelNormRope,
	model.KernelQKV:              wire.KernelQKV,
	model.KernelAttentionPrefill: wire.KernelAttentionPrefill,
	model.KernelAttentionDecode:  wire.KernelAttentionDecode,
	model.KernelOutput:           wire.KernelOutput,
	model.KernelMLP:              wire.KernelMLP,
	model.KernelLogits:           wire.KernelLogits,
	model.KernelSampling:         wire.KernelSampling,
	model.KernelMask:             wire.KernelMask,
	model.KernelKVCopy:           wire.KernelKVCopy,
}

// wireKernels translates the times of a step.
func wireKernels(all *[model.KernelClassCount]model.KernelTime) (kernels [wire.KernelClassCount]wire.KernelTime) {
	for class, k := range all {
		kernels[wireClasses[class]] = wire.KernelTime(k)
	}
	return kernels
}

// launchTrace is a caller's wish for the kernel launches of the next steps.
type launchTrace struct {
	steps int
	stop  atomic.Bool           // the caller has waited long enough
	done  chan wire.LaunchTrace // capacity 1

	// Owned by the loop from the turn that takes it.
	launches []model.Launch
	traced   int // steps
}

// launchesOfStep is more than a step has in most models.
const launchesOfStep = 1024

// TraceLaunches implements wire.LaunchTracer.
func (e *Engine) TraceLaunches(ctx context.Context, steps int, limit time.Duration) (*wire.LaunchTrace, error) {
	if err := wire.CheckLaunchTrace(steps, limit); err != nil {
		return nil, err
	}
	if err := e.inbox.refusal(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := &launchTrace{
		steps: steps, done: make(chan wire.LaunchTrace, 1),
		launches: make([]model.Launch, 0, min(wire.LaunchTraceMax, steps*launchesOfStep)),
	}
	if !e.inbox.launchTrace.CompareAndSwap(nil, t) {
		return nil, errOverloaded("a capture of kernel launches is running, and %d runs at a time; try again", 1)
	}
	stopped := ctx.Done()
	for {
		select {
		case result := <-t.done:
			return &result, nil
		case <-e.looped:
			return nil, errClosed()
		case <-stopped:
			t.stop.Store(true)
			e.inbox.kick()
			stopped = nil
		}
	}
}

// tracer fills launch traces, one at a time.
type tracer struct {
	asked   *atomic.Pointer[launchTrace] // in the inbox
	running *launchTrace                 // or nil
}

// follow begins the trace that is asked for, and ends one whose caller no
// longer waits.
func (c *tracer) follow(timer *model.Timer) {
	t := c.asked.Load()
	if t != c.running {
		c.running, timer.Launches, timer.Missing = t, t.launches, 0
	}
	if t != nil && t.stop.Load() {
		c.end(timer)
	}
}

// count counts a step of the trace that runs.
func (c *tracer) count(timer *model.Timer) {
	if c.running == nil {
		return
	}
	if c.running.traced++; c.running.traced == c.running.steps {
		c.end(timer)
	}
}

// end hands over the launches of the trace that runs, those of steps given up
// among them.
func (c *tracer) end(timer *model.Timer) {
	t := c.running
	if t == nil {
		return
	}
	result := wire.LaunchTrace{Launches: make([]wire.Launch, len(timer.Launches)), Steps: t.traced, Missing: timer.Missing}
	for i, one := range timer.Launches {
		result.Launches[i] = wire.Launch{Step: one.Step, Layer: one.Layer, Class: wireClasses[one.Class], Begin: one.Begin, End: one.End}
	}
	c.running, timer.Launches = nil, nil
	c.asked.Store(nil)
	t.done <- result
}
