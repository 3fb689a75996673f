package capture

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// arm takes a launch trace of the steps that follow a request which missed a goal,
// because the next request is often slow for the same reason. One trace is taken at a
// time, and two begin at least ArmInterval apart.
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
	running sync.WaitGroup // grows under mu and before ctx ends
}

// armed is the launch trace taken after the request with that id.
type armed struct {
	id    string
	trace []byte
}

const (
	// armedKept is how many launch traces are kept, each of at most 10 MB.
	armedKept = 4
	// armedLimit is the longest time for one of them.
	armedLimit = 10 * time.Second
)

func newArm(cfg *Config) *arm {
	a := &arm{steps: cfg.ArmSteps, every: cfg.ArmInterval}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// after begins a launch trace after the request with that id, unless one began lately.
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
	if err != nil || len(c.Launches) == 0 { // an operator takes one, or no steps ran
		return
	}
	if len(a.taken) == armedKept {
		a.taken = slices.Delete(a.taken, 0, 1)
	}
	a.taken = append(a.taken, armed{id, LaunchTrace(c)})
}

// close ends a launch trace that is being taken.
func (a *arm) close() {
	a.mu.Lock()
	a.stop()
	a.mu.Unlock()
	a.running.Wait()
}

// Arm makes the Store take launch traces of the engine's steps after requests that
// missed a goal, as the configuration says. Call it once, before the first request.
func (s *Store) Arm(engine wire.LaunchTracer) {
	if s == nil {
		return
	}
	s.arm.mu.Lock()
	defer s.arm.mu.Unlock()
	s.arm.engine = engine
}

// Launches returns the launch trace taken after the request with that id, or the last
// one for "", in the form of LaunchTrace; nil for none.
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
