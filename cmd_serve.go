package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/internal/wire"
)

// runServe runs the gateway, and the engine as its child. Start order: socket
// directory, gateway's addresses, engine, gateway; the stop is the reverse.
func runServe(c *console, args []string) error {
	s, err := c.configure(newFlagSet("serve [flags]"), args)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if s.Socket.Path == "" {
		dir, err := c.socketDir()
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.Socket.Path = filepath.Join(dir, "engine.sock")
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program to start the engine: %w", err)
	}
	log := c.logger(s.Log, "gateway")
	child := supervise.New(s.Supervise, supervise.Child{
		Path: exe, Args: s.engineArgs(), Env: c.engineEnviron(s.schema),
		Output: c.err, Prefix: "engine: ", Log: log,
	})
	front, err := openFront(c, &s.Config, child.Reason)
	if err != nil {
		return err
	}
	defer front.close()

	// The engine outlives ctx, since the gateway's last streams need it; ctx
	// ends with the engine, if that ends for good.
	ctx, fail := context.WithCancel(ctx)
	defer fail()
	engineCtx, stopEngine := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer fail()
		ended <- child.Run(engineCtx)
	}()
	err = front.run(ctx)
	stopEngine()
	return errors.Join(err, <-ended)
}

// engineArgs are the arguments of the engine child.
func (s *settings) engineArgs() []string {
	args := []string{"engine", "--lifeline", "--socket", s.Socket.Path, "--drain_limit", s.DrainLimit.String()}
	for _, section := range []string{"engine.", "engine_socket.", "log."} {
		args = append(args, s.schema.Args(section)...)
	}
	return args
}

// socketDir makes a directory for the socket that only this user may enter. A
// socket's path is short by nature, so a long runtime directory is passed over.
func (c *console) socketDir() (string, error) {
	parent := c.getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(parent); err != nil || !info.IsDir() || len(parent) > 70 {
		parent = os.TempDir()
	}
	if len(parent) > 70 {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "forebay-")
	if err != nil {
		return "", fmt.Errorf("directory for the engine's socket: %w; set XDG_RUNTIME_DIR to one that can be written", err)
	}
	return dir, nil
}

func runGateway(c *console, args []string) error {
	s, err := c.configure(newFlagSet("gateway --socket PATH [flags]"), args)
	if err != nil {
		return err
	}
	if s.Socket.Path == "" {
		return usageError("the gateway alone needs --socket PATH, the path where forebay engine listens")
	}
	ctx, stop := untilSignal()
	defer stop()
	front, err := openFront(c, &s.Config, func() string { return "" })
	if err != nil {
		return err
	}
	defer front.close()
	return front.run(ctx)
}

// runEngine serves the engine on a socket until a signal, then lets what runs
// end within the drain limit.
func runEngine(c *console, args []string) error {
	set := newFlagSet("engine --socket PATH [flags]")
	lifeline := set.Bool("lifeline", false, "end at once when standard input closes, as under forebay serve")
	s, err := c.configure(set, args)
	if err != nil {
		return err
	}
	if s.Socket.Path == "" {
		return usageError("the engine alone needs --socket PATH, the path to listen on")
	}
	if *lifeline {
		supervise.EndWithParent(c.in, func() { os.Exit(1) })
	}
	ctx, stop := untilSignal()
	defer stop()
	return s.serveEngine(ctx, c)
}

func (s *settings) serveEngine(ctx context.Context, c *console) (err error) {
	ln, err := wire.Listen(s.Socket.Path) // first, since loading may take long
	if err != nil {
		return err
	}
	defer ln.Close()
	e, err := engine.New(s.Engine)
	if err != nil {
		return hopelessError{err}
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	model := e.State().Model
	c.logger(s.Log, "engine").Info("engine ready", "model", model.ID, "kernels", model.Kernels, "socket", s.Socket.Path)

	serveCtx, stopServing := context.WithCancel(context.Background())
	defer stopServing()
	served := make(chan error, 1)
	s.EngineSocket.Version = version
	go func() { served <- wire.Serve(serveCtx, ln, e, s.EngineSocket) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.Background(), s.DrainLimit)
	defer cancel()
	e.Drain(limit) // past the limit, Close ends what still runs
	stopServing()  // writes what the connections still have to say
	return <-served
}
