package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// Config has the supervisor's limits. Zero fields take their defaults.
type Config struct {
	RestartWaitMin time.Duration `yaml:"restart_wait_min" default:"200ms" range:"1ms.." help:"Wait before the second restart in a row; it doubles with each further restart, and the first restart does not wait."`
	RestartWaitMax time.Duration `yaml:"restart_wait_max" default:"30s" help:"Longest wait before a restart."`
	StableAfter    time.Duration `yaml:"stable_after" default:"30s" help:"An engine that ran this long before it ended starts the count of ends in a row again."`
	CrashLoopExits int           `yaml:"crash_loop_exits" default:"6" range:"1.." help:"Ends in a row after which every restart waits restart_wait_max."`
	LoadLimit      time.Duration `yaml:"load_limit" default:"30m" range:"1s.." help:"Time that the engine has from its start until it is ready; then it is killed and started again."`
	HangLimit      time.Duration `yaml:"hang_limit" default:"2m" range:"1s.." help:"Time without progress, above that of the longest step, after which an engine that was ready is killed and started again."`
	StopLimit      time.Duration `yaml:"stop_limit" default:"5s" range:"1ms.." help:"Time that the engine has to end after it was asked to; then it is killed."`
	LineBytesMax   int           `yaml:"line_bytes_max" default:"8KiB" range:"80B..1MiB" help:"Longest line of the engine's output that is passed on whole, in bytes."`
}

// Mistakes checks fields of a filled Config against each other.
func (c *Config) Mistakes() error {
	if c.RestartWaitMin > c.RestartWaitMax {
		return fmt.Errorf("supervise.restart_wait_min is %v, above supervise.restart_wait_max, %v", c.RestartWaitMin, c.RestartWaitMax)
	}
	return nil
}

// ExitHopeless is the exit status of a child for which another start with the
// same arguments would end the same way. (EX_CONFIG of sysexits.h.)
const ExitHopeless = 78

// ExitDeviceFailed is the exit status of a child whose GPU has failed: only a new process can use
// it again.
const ExitDeviceFailed = 79

// Child is the process to run.
type Child struct {
	// Path is called before each start and returns the program; Name is its name
	// in a list of processes.
	Path func() string
	Name string
	Args []string
	// AfterDeviceFailed are more arguments of a start after an end with ExitDeviceFailed.
	AfterDeviceFailed []string
	Env               []string
	// Output receives both outputs of the child, each line after Prefix.
	Output io.Writer
	Prefix string
	// Log receives a line for each start but the first, and for each end.
	Log *slog.Logger
	// Started, if set, is called after each start, on the goroutine of Run.
	Started func(pid int)
}

// Supervisor keeps one Child running.
type Supervisor struct {
	cfg    Config
	child  Child
	output *lines

	mu      sync.Mutex
	reason  string
	running bool
	next    time.Time // when the next child starts, while none runs
	started time.Time // when the newest child was started
	alive   time.Time // when it was last seen to work; zero before
}

// New makes a supervisor; Run starts the child.
func New(cfg Config, c Child) *Supervisor {
	conf.Fill(&cfg)
	return &Supervisor{
		cfg: cfg, child: c, output: &lines{out: c.Output, prefix: c.Prefix, limit: cfg.LineBytesMax},
		reason: "the engine is starting",
	}
}

// Reason says why the child does not serve and what happens next; "" once it was
// seen to work. Clients of the gateway read it too, so it holds nothing that the
// child has printed.
func (s *Supervisor) Reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.IsZero() {
		return s.reason
	}
	return s.reason + startsAgain(time.Until(s.next))
}

func startsAgain(wait time.Duration) string {
	if wait <= 0 {
		return "; it starts again at once"
	}
	return "; it starts again in " + wait.Round(time.Millisecond).String()
}

// RestartsAt is when the next child starts; zero while one runs.
func (s *Supervisor) RestartsAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// Alive says that the child was seen to work at this instant. The user of the child
// calls it again and again; otherwise the child counts as hung.
func (s *Supervisor) Alive(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running && at.After(s.started) && at.After(s.alive) {
		s.alive, s.reason = at, ""
	}
}

// begin and ended note the start and the end of the newest child.
func (s *Supervisor) begin(started time.Time, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.next, s.started, s.alive, s.reason = true, time.Time{}, started, time.Time{}, reason
}

func (s *Supervisor) ended(next time.Time, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.next, s.reason = false, next, reason
}

// Run keeps the child running until ctx is done, then stops it. It returns an
// error if the child could not be started at all, if the first one ended as
// hopeless, or if the last one failed to end well.
func (s *Supervisor) Run(ctx context.Context) error {
	// The death signal is tied to the thread that starts the child, not to the
	// process: keep the thread for as long as a child may live.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	b := backoff{waitMin: s.cfg.RestartWaitMin, waitMax: s.cfg.RestartWaitMax, stableAfter: s.cfg.StableAfter, crashLoopExits: s.cfg.CrashLoopExits}
	before := "the engine " // and how the last one ended
	args := s.child.Args
	for first := true; ; first = false {
		started := time.Now()
		s.begin(started, before+"is loading its model")
		end, err := s.runOnce(ctx, args)
		if ctx.Err() != nil {
			return err
		}
		if first && (end == nil || end.ExitCode() == ExitHopeless) {
			return err
		}
		args = s.child.Args
		if end.ExitCode() == ExitDeviceFailed {
			args = slices.Concat(args, s.child.AfterDeviceFailed)
		}
		wait := b.next(started, time.Now(), rand.Float64())
		before = fmt.Sprintf("the engine ended (%v), was started again and ", endOf(end))
		what := fmt.Sprintf("the engine ended (%v)", endOf(end))
		if b.crashLoop() {
			what = fmt.Sprintf("the engine keeps ending, %d times now, at last with %v", b.exits, endOf(end))
		}
		s.ended(time.Now().Add(wait), what)
		s.child.Log.Warn(what+startsAgain(wait), "cause", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// endOf says how a child ended, without the words that it has printed.
func endOf(state *os.ProcessState) string {
	switch {
	case state == nil:
		return "it could not be started"
	case state.ExitCode() == ExitHopeless:
		return "it cannot take its configuration or its model; the log says why"
	case state.ExitCode() == ExitDeviceFailed:
		return "its GPU failed; the log says where"
	}
	return state.String()
}

// runOnce starts the child and waits for its end; when ctx is done, it asks the child
// to end. The error says how the child ended; it is nil only where the child was
// asked to end and did.
func (s *Supervisor) runOnce(ctx context.Context, args []string) (*os.ProcessState, error) {
	cmd := exec.Command(s.child.Path(), args...)
	cmd.Args[0] = s.child.Name
	cmd.Env, cmd.SysProcAttr = s.child.Env, childAttr()
	cmd.Stdout, cmd.Stderr = s.output, s.output
	cmd.WaitDelay = time.Second // for a grandchild that holds the outputs open
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the engine: %w", err)
	}
	if s.child.Started != nil {
		s.child.Started(cmd.Process.Pid)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	dog := watchdog{loadLimit: s.cfg.LoadLimit, hangLimit: s.cfg.HangLimit}
	tick := time.NewTicker(dog.interval())
	defer tick.Stop()
	for killed := false; ; {
		select {
		case err := <-ended:
			return cmd.ProcessState, s.explain(err)
		case <-ctx.Done():
			return s.stop(cmd, ended)
		case <-tick.C:
			if why := s.hung(&dog); why != "" && !killed {
				s.child.Log.Error("the engine is killed: "+why, "pid", cmd.Process.Pid)
				cmd.Process.Kill()
				killed = true
			}
		}
	}
}

// hung asks dog whether the child hangs, and makes a long silence the Reason.
func (s *Supervisor) hung(dog *watchdog) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	silent, limit := dog.tick(s.alive)
	switch {
	case silent >= limit && s.alive.IsZero():
		return fmt.Sprintf("it was not ready within %v (supervise.load_limit)", limit)
	case silent >= limit:
		return fmt.Sprintf("it made no progress for %v (supervise.hang_limit)", limit)
	case silent > 0 && !s.alive.IsZero():
		s.reason = fmt.Sprintf("the engine has made no progress for %v; it is started again after %v", silent, limit)
	}
	return ""
}

// stop asks the child to end, and kills it if it does not.
func (s *Supervisor) stop(cmd *exec.Cmd, ended <-chan error) (*os.ProcessState, error) {
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		err = s.explain(err)
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if cmd.ProcessState.Success() || status.Signaled() && status.Signal() == syscall.SIGTERM { // it had no handler yet
			err = nil
		}
		return cmd.ProcessState, err
	case <-time.After(s.cfg.StopLimit):
		cmd.Process.Kill()
		<-ended
		s.output.end()
		return cmd.ProcessState, fmt.Errorf("the engine did not end within %v and was killed", s.cfg.StopLimit)
	}
}

// explain joins how the child ended with the reason that it has printed.
func (s *Supervisor) explain(err error) error {
	verdict := s.output.end()
	var exit *exec.ExitError
	switch {
	case err == nil && verdict == "":
		return errors.New("exit status 0")
	case verdict == "":
		return err
	case errors.As(err, &exit) && exit.ExitCode() == ExitHopeless:
		return errors.New(verdict)
	}
	return fmt.Errorf("%v: %s", err, verdict)
}

// EndWithParent is for the child: it calls end when stdin closes, which the parent
// holds open and never writes to. Its goroutine lives until then.
func EndWithParent(stdin io.Reader, end func()) {
	go func() {
		io.Copy(io.Discard, stdin)
		end()
	}()
}
