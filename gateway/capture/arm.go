package capture

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// arm takes down the single kernel launches of the steps that follow a request
// which missed a goal, so that the second of its kind can be looked at closely.
// One capture runs at a time, and not more often than every so often.
type arm struct {
	steps int
	every time.Duration

	mu      sync.Mutex
	engine  wire.LaunchTracer
	last    time.Time
	armed   bool
	taken   []armed // the oldest first
	stop    context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup // grows under mu, while ctx has not ended
}

// armed is what one capture gave, after the request of that id.
type armed struct {
	id    string
	trace []byte
}

const (
	// armedKept is how many captures are kept, each of at most 10 MB.
	armedKept = 4
	// armedLimit is how long steps are waited for.
	armedLimit = 10 * time.Second
)

func newArm(cfg *Config) *arm {
	a := &arm{steps: cfg.ArmSteps, every: cfg.ArmInterval}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// after begins a capture after the request of that id, unless one came lately.
func (a *arm) after(id string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.steps == 0 || a.engine == nil || a.armed || a.ctx.Err() != nil || !a.last.IsZero() && now.Sub(a.last) < a.every {
		return
	}
	a.last, a.armed = now, true
	a.running.Go(func() { a.take(id, a.engine) })
}

func (a *arm) take(id string, engine wire.LaunchTracer) {
	c, err := engine.TraceLaunches(a.ctx, a.steps, armedLimit)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
	if err != nil || len(c.Launches) == 0 { // an operator's capture runs, or nothing else does
		return
	}
	if len(a.taken) == armedKept {
		a.taken = slices.Delete(a.taken, 0, 1)
	}
	a.taken = append(a.taken, armed{id, LaunchTrace(c)})
}

// close ends a capture that runs.
func (a *arm) close() {
	a.mu.Lock()
	a.stop()
	a.mu.Unlock()
	a.running.Wait()
}

// Arm makes the Store take down launches of engine's steps after a request that
// missed a goal, as the configuration says. It comes once, before the first.
func (s *Store) Arm(engine wire.LaunchTracer) {
	if s == nil {
		return
	}
	s.arm.mu.Lock()
	defer s.arm.mu.Unlock()
	s.arm.engine = engine
}

// Launches are those that were taken down after the request of that id, as
// LaunchTrace has them, or the last ones of all for "". They are nil where there
// are none.
func (s *Store) Launches(id string) []byte {
	if s == nil {
		return nil
	}
	s.arm.mu.Lock()
	defer s.arm.mu.Unlock()
	for _, t := range slices.Backward(s.arm.taken) {
		if id == "" || t.id == id {
			return t.trace
		}
	}
	return nil
}
