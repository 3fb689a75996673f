package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway"
	"github.com/forebay-io/forebay/internal/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// front is the gateway with what it stands on: its addresses and its client of
// the engine. openFront builds, run serves and drains, close takes down.
type front struct {
	cfg     *Config
	console *console
	api     net.Listener
	admin   net.Listener // nil where it is off
	client  *wire.Client
	gateway *gateway.Gateway
	closers []func() // in the order of building
}

// openFront takes the addresses first, so that a second instance fails before
// it has started anything. reason says why the engine is away, if known.
func openFront(c *console, cfg *Config, reason func() string) (f *front, err error) {
	f = &front{cfg: cfg, console: c}
	defer func(built *front) {
		if err != nil {
			built.close()
		}
	}(f)
	if f.api, err = f.listen("listen", cfg.Listen); err != nil {
		return nil, err
	}
	if cfg.Admin != adminOff {
		if f.admin, err = f.listen("admin", cfg.Admin); err != nil {
			return nil, err
		}
	}
	cfg.Socket.Version = version
	if f.client, err = wire.NewClient(cfg.Socket); err != nil {
		return nil, err
	}
	f.closers = append(f.closers, func() { f.client.Close() })
	return f, f.build(c, explained{f.client, reason})
}

func (f *front) build(c *console, e wire.Engine) (err error) {
	queue, err := admission.NewFIFO(f.cfg.Admission)
	if err != nil {
		return err
	}
	f.closers = append(f.closers, queue.Close)
	recorder, err := telemetry.New(f.cfg.Telemetry, c.out, gateway.Levels(queue, e))
	if err != nil {
		return err
	}
	f.gateway, err = gateway.New(f.cfg.Gateway, gateway.Parts{
		Engine: e, Admission: queue, Recorder: recorder, Version: version, Log: c.logger(f.cfg.Log, "gateway"),
	})
	if err != nil {
		return err
	}
	f.closers = append(f.closers, func() { f.gateway.Close() })
	return nil
}

func (f *front) listen(key, address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the address %s is in use, by another forebay perhaps: stop that, or choose another with --%s", address, key)
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", key, err)
	}
	f.closers = append(f.closers, func() { ln.Close() })
	return ln, nil
}

// close takes down what openFront built, the last first.
func (f *front) close() {
	for _, closer := range slices.Backward(f.closers) {
		closer()
	}
}

// run serves until ctx ends, then lets running streams end within the drain limit.
func (f *front) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served, greeted := make(chan error, 2), make(chan struct{})
	go func() { served <- f.gateway.Serve(f.api) }()
	servers := 1
	if f.admin != nil {
		servers++
		go func() { served <- f.gateway.ServeAdmin(f.admin) }()
	}
	go func() {
		defer close(greeted)
		if f.client.WaitReady(ctx) == nil {
			f.greet(f.console.err)
		}
	}()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		servers--
	}
	cancel()
	<-greeted
	limit, done := context.WithTimeout(context.Background(), f.cfg.DrainLimit)
	defer done()
	f.gateway.Shutdown(limit) // past the limit it has cut what still ran
	for range servers {
		err = errors.Join(err, <-served)
	}
	return err
}

// greet says what runs and how to try it.
func (f *front) greet(w io.Writer) {
	model := f.client.State().Model
	url := "http://" + reachable(f.api.Addr().String())
	fmt.Fprintf(w, "Forebay %s serves %s at %s, by %s kernels\n", version, model.ID, url, model.Kernels)
	if f.admin != nil {
		fmt.Fprintf(w, "Metrics and debug pages: http://%s/metrics\n", reachable(f.admin.Addr().String()))
	}
	fmt.Fprintf(w, "Try: curl -N %s/v1/chat/completions -H 'Content-Type: application/json' \\\n", url)
	fmt.Fprintf(w, "  -d '{\"model\": %q, \"stream\": true, \"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n", model.ID)
}

// explained is the engine's client, whose State says what the supervisor
// knows of an engine that is away.
type explained struct {
	*wire.Client
	reason func() string
}

// State implements wire.Engine.
func (e explained) State() *wire.State {
	s := e.Client.State()
	reason := e.reason()
	if s.Err == nil || reason == "" {
		return s
	}
	told, err := *s, *s.Err
	err.Message = reason
	told.Err = &err
	return &told
}
