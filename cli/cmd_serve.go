package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// runServe runs the gateway, and the engine as its child. It starts the socket
// directory, the gateway's addresses, the engine and the gateway in this order,
// and stops them in reverse.
func runServe(c *console, args []string) error {
	set := newFlagSet("serve [flags]")
	lifeline := set.Bool("lifeline", false, "end at once when standard input closes, as beside another server")
	s, err := c.configure(set, args)
	if err != nil {
		return err
	}
	defer c.decouple(s.Log.LinesMax)()
	if s.beside = *lifeline; s.beside {
		supervise.EndWithParent(c.in, func() { os.Exit(1) })
	}
	if s.Upstream.OwnEngine != "" {
		return c.serveBeside(s)
	}
	if s.Upstream.On() {
		return c.serveAlone(s)
	}
	log := c.logger(s.Log, "gateway")
	cleanUp := func() {}
	if s.Socket.Path == "" {
		dir, err := makeRunDir(c.runDirParent())
		if err != nil {
			return err
		}
		defer dir.remove()
		s.Socket.Path, cleanUp = dir.socket(), dir.remove
	} else if err := tryListen(s.Socket.Path); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program to start the engine: %w", err)
	}
	ctx, stop := untilSignal(cleanUp, s.hangUp)
	defer stop()
	engineArgs := s.engineArgs()
	child := supervise.New(s.Supervise, supervise.Child{
		Path: func() string { return thisProgram(exe) }, Name: "forebay", Args: engineArgs, AfterDeviceFailed: []string{"--after-fault"}, Env: c.engineEnviron(s.schema),
		Output: c.err, Prefix: "engine: ", Log: log,
	})
	front, err := openFront(c, s, child)
	if err != nil {
		return s.schema.Place(err)
	}
	defer front.close()

	// The engine outlives ctx, because the gateway's last streams need it. If the
	// engine ends for good, ctx ends too.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	engineCtx, stopEngine := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer fail(errEngineEnded)
		if err := c.fetchModel(ctx, &s.Engine, log, front.view.fetches); err != nil {
			ended <- unlessEnded(ctx, err)
			return
		}
		front.view.fetched()
		copy(engineArgs[len(engineArgs)-modelArgs:], s.modelArgs())
		ended <- child.Run(engineCtx)
	}()
	err = front.run(ctx)
	stopEngine()
	return errors.Join(err, <-ended)
}

// errEngineEnded makes the gateway stop when the engine will not come back. The
// engine's own error is reported at the end.
var errEngineEnded = errors.New("the engine ended")

// tryListen checks that the engine can listen on path. If another engine
// listened there, the gateway would connect to that one.
func tryListen(path string) error {
	ln, err := wire.Listen(path)
	if err != nil {
		return err
	}
	return ln.Close()
}

// thisProgram returns exe, or, if that file was removed or replaced meanwhile,
// Linux's path of the running program.
func thisProgram(exe string) string {
	const running = "/proc/self/exe"
	own, err := os.Stat(running)
	if err != nil {
		return exe
	}
	if named, err := os.Stat(exe); err != nil || !os.SameFile(own, named) {
		return running
	}
	return exe
}

// engineArgs returns the arguments of the engine child.
func (s *settings) engineArgs() []string {
	args := []string{"engine", "--lifeline", "--socket", s.Socket.Path, "--drain_limit", s.DrainLimit.String()}
	args = append(args, s.sectionArgs("engine.", "engine_socket.", "log.")...)
	return append(args, s.modelArgs()...)
}

// sectionArgs returns the settings of sections as arguments, without the model's name.
func (s *settings) sectionArgs(sections ...string) (args []string) {
	for _, section := range sections {
		args = append(args, s.schema.Args(section)...)
	}
	return slices.DeleteFunc(args, func(arg string) bool {
		return strings.HasPrefix(arg, "--engine.model=") || strings.HasPrefix(arg, "--engine.model_id=")
	})
}

// modelArgs is the number of arguments at the end that name the model. After a
// download they are replaced once, before the first start.
const modelArgs = 2

func (s *settings) modelArgs() []string {
	return []string{"--engine.model=" + s.Engine.Model, "--engine.model_id=" + s.Engine.ModelID}
}

// unlessEnded returns err, or nil if ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func runGateway(c *console, args []string) error {
	s, err := c.configure(newFlagSet("gateway --socket PATH [flags]"), args)
	if err != nil {
		return err
	}
	if s.Socket.Path == "" && !s.Upstream.On() {
		return usageError("the gateway alone needs --socket PATH, the path where forebay engine listens, or --upstream URL")
	}
	defer c.decouple(s.Log.LinesMax)()
	return c.serveAlone(s)
}

// serveAlone runs the gateway until a signal, before an engine that is not its child.
func (c *console) serveAlone(s *settings) error {
	ctx, stop := untilSignal(func() {}, s.hangUp)
	defer stop()
	front, err := openFront(c, s, nil)
	if err != nil {
		return s.schema.Place(err)
	}
	defer front.close()
	return front.run(ctx)
}

// runEngine serves the engine on a socket until a signal, then lets running
// generations finish within the drain limit.
func runEngine(c *console, args []string) error {
	set := newFlagSet("engine --socket PATH [flags]")
	lifeline := set.Bool("lifeline", false, "end at once when standard input closes, as under forebay serve")
	afterFault := set.Bool("after-fault", false, "the engine before this one ended since its GPU failed, as forebay serve says")
	s, err := c.configure(set, args)
	if err != nil {
		return hopelessError{err}
	}
	if s.Socket.Path == "" {
		return usageError("the engine alone needs --socket PATH, the path to listen on")
	}
	defer c.decouple(s.Log.LinesMax)()
	leaveRoomBeside(&s.Engine)
	s.Engine.Device.AfterFault = *afterFault
	if *lifeline {
		supervise.EndWithParent(c.in, func() { os.Exit(1) })
	}
	// Under serve, what SIGHUP means is the gateway's business, even where it is sent
	// to all processes of this name.
	var reload func()
	if *lifeline {
		reload = func() {}
	}
	ctx, stop := untilSignal(func() {}, reload)
	defer stop()
	return s.serveEngine(ctx, c)
}

// leaveRoomBeside lets one goroutine more run than the engine computes with. Without
// it a request that arrives during a step is prepared up to 10 ms later, since the
// goroutines that compute are in assembly, which nothing interrupts.
func leaveRoomBeside(cfg *engine.Config) {
	processors := runtime.GOMAXPROCS(0)
	if cfg.Threads == 0 {
		cfg.Threads = processors
	}
	runtime.GOMAXPROCS(max(processors, cfg.Threads+1))
}

func (s *settings) serveEngine(ctx context.Context, c *console) (err error) {
	ln, err := wire.Listen(s.Socket.Path) // first, since loading may take long
	if err != nil {
		return hopelessError{err}
	}
	defer ln.Close()
	log := c.logger(s.Log, "engine")
	for _, name := range unknownKernels(c.getenv(kernels.DisableEnv)) {
		log.Warn("no kernel set has a name in "+kernels.DisableEnv, "name", name, "names", kernelNames)
	}
	if err := c.fetchModel(ctx, &s.Engine, log, func(string) {}); err != nil {
		return unlessEnded(ctx, err)
	}
	// Loading cannot be cancelled, and no request runs yet.
	loaded := context.AfterFunc(ctx, func() {
		ln.Close()
		os.Exit(0)
	})
	s.Engine.Log = log
	if s.Engine.Device.Driver == "" {
		s.Engine.Device.Driver = c.getenv(cudaDriverVar)
	}
	fault := make(chan error, 1)
	s.Engine.Fault = func(err error) { fault <- err }
	e, err := engine.New(s.Engine)
	loaded()
	if err != nil {
		return hopelessError{err}
	}
	defer func() {
		if !errors.As(err, new(deviceError)) { // nothing of a failed device can be given back
			err = errors.Join(err, e.Close())
		}
	}()
	model := e.State().Model
	log.Info("engine ready", "model", model.ID, "kernels", model.Kernels, "device", model.Device, "socket", s.Socket.Path)

	serveCtx, stopServing := context.WithCancel(context.Background())
	defer stopServing()
	served := make(chan error, 1)
	s.EngineSocket.Version = version
	go func() { served <- wire.Serve(serveCtx, ln, e, s.EngineSocket) }()
	select {
	case err := <-served:
		return err
	case err := <-fault:
		stopServing() // writes the ends that wait
		return deviceError{errors.Join(fmt.Errorf("this process ends, since only a new one can use the device again: %w", err), <-served)}
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), s.DrainLimit)
	defer cancel()
	log.Info("stopping: running generations may finish", "reason", context.Cause(ctx), "drain_limit", s.DrainLimit)
	if e.Drain(limit) != nil { // Close ends the rest
		left := e.State()
		log.Warn("the drain limit is over: the remaining generations are cut", "sequences", left.Running+left.Waiting+left.Paused)
	}
	stopServing() // writes the frames that wait
	return <-served
}

// kernelNames lists the kernel sets that can be switched off.
var kernelNames = []string{"avx2", "avx2int8", "avx512", "avx512vnni", "avx512bf16", "avx512amx", "neon"}

// unknownKernels returns the names in a comma-separated list that no kernel set has.
func unknownKernels(list string) (unknown []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(kernelNames, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
