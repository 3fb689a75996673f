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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// Config says how patient the supervisor is. Zero fields take their defaults.
type Config struct {
	RestartWaitMin time.Duration `yaml:"restart_wait_min" default:"200ms" help:"Wait before the second restart in a row, which each further one doubles; the first restart does not wait."`
	RestartWaitMax time.Duration `yaml:"restart_wait_max" default:"30s" help:"Longest wait before a restart."`
	StableAfter    time.Duration `yaml:"stable_after" default:"30s" help:"An engine that ran this long before it ended counts as its first end again."`
	CrashLoopExits int           `yaml:"crash_loop_exits" default:"6" help:"Ends in a row after which every restart waits restart_wait_max."`
	StopLimit      time.Duration `yaml:"stop_limit" default:"5s" help:"Time that the engine has to end after it was asked to; then it is killed."`
	LineBytesMax   int           `yaml:"line_bytes_max" default:"8KiB" help:"Longest line of the engine's output that is passed on whole, in bytes."`
}

// ExitHopeless is the exit status of a child for which another start with the
// same arguments would end the same way. (EX_CONFIG of sysexits.h.)
const ExitHopeless = 78

// Child is the process to run.
type Child struct {
	Path string
	Args []string
	Env  []string
	// Output receives both outputs of the child, each line after Prefix.
	Output io.Writer
	Prefix string
	// Log receives a line of our own for each end.
	Log *slog.Logger
	// Started, if set, is called after each start, on the goroutine of Run.
	Started func(pid int)
}

// Supervisor runs one Child again and again.
type Supervisor struct {
	cfg    Config
	child  Child
	output *lines
	reason atomic.Pointer[string]
}

// New makes a supervisor; Run starts the child.
func New(cfg Config, c Child) *Supervisor {
	conf.Fill(&cfg)
	s := &Supervisor{cfg: cfg, child: c, output: &lines{out: c.Output, prefix: c.Prefix, limit: cfg.LineBytesMax}}
	s.say("")
	return s
}

// Reason says why the child ended last and what happens now; "" before that.
// It stays after a restart, for the time until the child serves.
func (s *Supervisor) Reason() string { return *s.reason.Load() }

func (s *Supervisor) say(reason string) { s.reason.Store(&reason) }

// Run keeps the child running until ctx is done, then stops it. It returns an
// error if the child could not be started at all, if the first one ended as
// hopeless, or if the last one had to be killed.
func (s *Supervisor) Run(ctx context.Context) error {
	// The death signal is tied to the thread that starts the child, not to the
	// process: keep the thread for as long as a child may live.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	b := backoff{waitMin: s.cfg.RestartWaitMin, waitMax: s.cfg.RestartWaitMax, stableAfter: s.cfg.StableAfter, crashLoopExits: s.cfg.CrashLoopExits}
	for first := true; ; first = false {
		started := time.Now()
		end, err := s.runOnce(ctx)
		if ctx.Err() != nil {
			return err
		}
		if first && (end == nil || end.ExitCode() == ExitHopeless) {
			return err
		}
		wait := b.next(started, time.Now(), rand.Float64())
		s.say(fmt.Sprintf("the engine ended (%v); it starts again in %v", err, wait.Round(time.Millisecond)))
		if b.crashLoop() {
			s.say(fmt.Sprintf("the engine keeps ending, %d times now, at last with: %v; it starts again in %v", b.exits, err, wait.Round(time.Millisecond)))
		}
		s.child.Log.Warn(s.Reason())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// runOnce starts the child and waits for its end, which ctx may ask for. The
// error says how the child ended, nil only if it was asked to and did.
func (s *Supervisor) runOnce(ctx context.Context) (*os.ProcessState, error) {
	cmd := exec.Command(s.child.Path, s.child.Args...)
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
	select {
	case err := <-ended:
		return cmd.ProcessState, s.explain(err)
	case <-ctx.Done():
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		s.output.end()
		return cmd.ProcessState, nil
	case <-time.After(s.cfg.StopLimit):
		cmd.Process.Kill()
		<-ended
		return cmd.ProcessState, fmt.Errorf("the engine did not end within %v and was killed", s.cfg.StopLimit)
	}
}

// explain joins how the child ended with what it said itself.
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

// EndWithParent is for the child: it calls end once stdin, which the parent
// holds open and never writes to, closes. Its goroutine lives until then.
func EndWithParent(stdin io.Reader, end func()) {
	go func() {
		io.Copy(io.Discard, stdin)
		end()
	}()
}
