package capture

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// capturer gives one launch, once it may.
type capturer struct {
	calls int
	may   chan struct{}
}

func (c *capturer) TraceLaunches(ctx context.Context, steps int, _ time.Duration) (*wire.LaunchTrace, error) {
	c.calls++
	select {
	case <-c.may:
	case <-ctx.Done():
	}
	return &wire.LaunchTrace{Steps: steps, Launches: []wire.Launch{{Step: 7, Class: wire.KernelMLP, Begin: 1, End: 2}}}, nil
}

// TestArmedAfterAMissedGoal: launches are taken down after a request that missed
// a goal, one capture at a time, seldom, and not after others.
func TestArmedAfterAMissedGoal(t *testing.T) {
	s := newStore(t, Config{ArmSteps: 5, ArmInterval: time.Hour})
	engine := &capturer{may: make(chan struct{})}
	s.Arm(engine)
	offer := func(id string, broken telemetry.Goals) {
		now := wire.Monotonic()
		s.Offer(&telemetry.Record{ID: id, Class: "interactive", Outcome: telemetry.OK, Arrived: now - 1e9, Dispatched: now - 9e8, Finished: now, Broken: broken})
	}
	offer("in time", 0)
	offer("slow", telemetry.FirstTokenGoal)
	offer("slow too", telemetry.FirstTokenGoal)
	close(engine.may)
	for until := time.Now().Add(10 * time.Second); s.Launches("slow") == nil && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	trace := string(s.Launches("slow"))
	if !strings.Contains(trace, `"mlp"`) || !strings.Contains(trace, `"step":7`) || trace != string(s.Launches("")) {
		t.Errorf("taken down: %s", trace)
	}
	if s.Launches("in time") != nil || s.Launches("slow too") != nil || engine.calls != 1 {
		t.Errorf("%d captures", engine.calls)
	}
	off := newStore(t, Config{})
	off.Arm(engine)
	offer("slow", telemetry.FirstTokenGoal)
	if engine.calls != 1 {
		t.Error("armed where it is off")
	}
}

// TestCloseEndsACapture that waits for steps.
func TestCloseEndsACapture(t *testing.T) {
	s := newStore(t, Config{ArmSteps: 5})
	s.Arm(&capturer{may: make(chan struct{})})
	s.arm.after("slow", time.Now())
	s.Close()
}
