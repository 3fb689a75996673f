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
	stop  atomic.Bool       // the caller has waited long enough
	done  chan wire.Capture // capacity 1

	// Owned by the loop from the turn that takes it.
	launches []model.Launch
	traced   int // steps
}

// launchesOfStep is more than a step has in most models.
const launchesOfStep = 1024

// Capture implements wire.Capturer.
func (e *Engine) Capture(ctx context.Context, steps int, limit time.Duration) (*wire.Capture, error) {
	if err := wire.CheckCapture(steps, limit); err != nil {
		return nil, err
	}
	if err := e.inbox.refusal(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := &launchTrace{
		steps: steps, done: make(chan wire.Capture, 1),
		launches: make([]model.Launch, 0, min(wire.CaptureLaunchesMax, steps*launchesOfStep)),
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

// followTrace begins the launch trace that is asked for, and ends one whose
// caller no longer waits.
func (l *loop) followTrace() {
	t := l.inbox.launchTrace.Load()
	if t != l.trace {
		l.trace, l.timer.Launches, l.timer.Missing = t, t.launches, 0
	}
	if t != nil && t.stop.Load() {
		l.endTrace()
	}
}

// countTrace counts a step of the launch trace that runs.
func (l *loop) countTrace() {
	if l.trace == nil {
		return
	}
	if l.trace.traced++; l.trace.traced == l.trace.steps {
		l.endTrace()
	}
}

// endTrace hands the launches over, those of steps given up among them.
func (l *loop) endTrace() {
	t := l.trace
	result := wire.Capture{Launches: make([]wire.Launch, len(l.timer.Launches)), Steps: t.traced, Missing: l.timer.Missing}
	for i, one := range l.timer.Launches {
		result.Launches[i] = wire.Launch{Step: one.Step, Layer: one.Layer, Class: wireClasses[one.Class], Begin: one.Begin, End: one.End}
	}
	l.trace, l.timer.Launches = nil, nil
	l.inbox.launchTrace.Store(nil)
	t.done <- result
}
