package wiretest

import (
	"context"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// TraceLaunches implements wire.LaunchTracer: one launch for each member of each step.
func (f *Fake) TraceLaunches(ctx context.Context, steps int, limit time.Duration) (*wire.LaunchTrace, error) {
	if err := wire.CheckLaunchTrace(steps, limit); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := &wire.LaunchTrace{}
	for from := f.steps.Added(); c.Steps < steps && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		from = f.steps.After(from, func(s *wire.StepRecord) bool {
			at := s.Began
			for i, m := range s.Members {
				c.Launches = append(c.Launches, wire.Launch{Step: s.Step, Layer: i, Class: wire.KernelMLP, Begin: at, End: at + int64(m.Own)})
				at += int64(m.Own)
			}
			c.Steps++
			return c.Steps < steps
		})
	}
	return c, nil
}
