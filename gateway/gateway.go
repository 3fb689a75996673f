package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// Parts are what a Gateway stands on. They belong to the caller, who closes
// them after the Gateway.
type Parts struct {
	Engine    wire.Engine
	Admission admission.Controller
	// Policy says who may ask in which class; nil serves everybody alike.
	Policy *admission.Policy
	// Budget holds tenants to their limits; nil holds nobody.
	Budget   budget.Store
	Recorder *telemetry.Recorder
	// Capture keeps the requests that somebody will ask about; nil keeps none.
	Capture *capture.Store
	Version string
	// Log takes what goes wrong on our own side.
	Log *slog.Logger
}

// Gateway serves HTTP.
type Gateway struct {
	// Fixed at construction.
	cfg       Config
	engine    wire.Engine
	admission admission.Controller
	policy    *admission.Policy
	budget    budget.Store
	recorder  *telemetry.Recorder
	capture   *capture.Store
	version   string
	log       *slog.Logger
	cors      cors
	routes    []route
	watcher   watcher
	server    *fasthttp.Server
	admin     *fasthttp.Server

	serials  atomic.Uint64 // of generations so far
	draining atomic.Bool
	cut      chan struct{} // closed when the drain limit is over
	cutOnce  sync.Once

	mu        sync.Mutex
	live      map[*exchange]struct{}
	listeners []*listener
	stopped   bool // nothing is accepted any more
}

// Levels reads the gauges that telemetry shows from who owns them. store may be nil.
func Levels(a admission.Controller, e wire.Engine, store budget.Store) func() telemetry.Levels {
	return func() telemetry.Levels {
		load, view := a.Load(), a.View()
		l := telemetry.Levels{RequestsRunning: load.Running, RequestsWaiting: load.Waiting, Engine: e.State(), StepMargin: view.Margin, Brownout: view.Brownout}
		l.Lengths = telemetry.LengthLevel(view.Lengths)
		for _, c := range view.Classes {
			l.Classes = append(l.Classes, telemetry.ClassLevel{Name: c.Name, Running: c.Running, Waiting: c.Waiting})
		}
		l.LimiterDegraded = store != nil && store.Degraded()
		return l
	}
}

// New makes a Gateway; Close releases it.
func New(cfg Config, p Parts) (*Gateway, error) {
	if err := conf.Complete("gateway", &cfg); err != nil {
		return nil, err
	}
	w, err := newWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch connections: %w", err)
	}
	g := &Gateway{
		cfg: cfg, engine: p.Engine, admission: p.Admission, policy: p.Policy, budget: p.Budget, recorder: p.Recorder, capture: p.Capture, version: p.Version, log: p.Log,
		cors: newCORS(cfg.CORSOrigins), watcher: w,
		cut: make(chan struct{}), live: map[*exchange]struct{}{},
	}
	if g.policy == nil {
		if g.policy, err = admission.NewPolicy(admission.Config{}); err != nil {
			return nil, err
		}
	}
	if g.log == nil {
		g.log = slog.Default()
	}
	g.observe()
	g.routes = g.clientRoutes()
	g.server = g.newServer(g.handle, g.expect)
	g.admin = g.newServer(g.adminHandler(), expectNothing)
	return g, nil
}

func (g *Gateway) newServer(handler fasthttp.RequestHandler, expect func(*fasthttp.RequestCtx) int) *fasthttp.Server {
	l, t := &g.cfg.Limits, &g.cfg.Timeouts
	return &fasthttp.Server{
		Handler:       handler,
		ErrorHandler:  g.parseFailed,
		ExpectHandler: expect,
		ConnState:     connState,
		HeaderReceived: func(*fasthttp.RequestHeader) fasthttp.RequestConfig {
			return fasthttp.RequestConfig{ReadTimeout: t.BodyLimit}
		},
		Concurrency:           2 * l.ConnectionsMax,
		ReadBufferSize:        l.HeaderBytesMax,
		MaxRequestBodySize:    l.BodyBytesMax,
		ReadTimeout:           t.HeaderLimit,
		WriteTimeout:          t.WriteStallLimit,
		IdleTimeout:           t.IdleLimit,
		NoDefaultServerHeader: true,
		MaxIdleWorkerDuration: time.Second,
		// Memory of idle connections must not grow with the limits.
		ReduceMemoryUsage:            true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		Logger:                       quietLogger{},
	}
}

// quietLogger drops fasthttp's notes about connections; requests are logged
// by their records.
type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

// Serve answers clients on ln until Shutdown.
func (g *Gateway) Serve(ln net.Listener) error { return g.serveOn(g.server, ln) }

// ServeAdmin answers the operator on ln until Shutdown.
func (g *Gateway) ServeAdmin(ln net.Listener) error { return g.serveOn(g.admin, ln) }

func (g *Gateway) serveOn(s *fasthttp.Server, ln net.Listener) error {
	l := &listener{Listener: ln, watcher: g.watcher, max: g.cfg.Limits.ConnectionsMax, refusals: make(chan struct{}, refusalsMax), conns: map[*conn]struct{}{}}
	g.mu.Lock()
	g.listeners = append(g.listeners, l)
	stopped := g.stopped
	g.mu.Unlock()
	if stopped {
		return ln.Close()
	}
	return s.Serve(l)
}

// StartDraining makes the gateway unready and refuse new requests; running
// ones go on.
func (g *Gateway) StartDraining() { g.draining.Store(true) }

// Shutdown drains: new requests get 503 at once, running ones may finish until
// ctx ends and are then cut with an error. It returns when all connections are
// closed.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.StartDraining()
	g.awaitIdle(ctx)
	g.cutOnce.Do(func() { close(g.cut) })
	// Whoever was cut has one write left, which the stall limit bounds.
	last, cancel := context.WithTimeout(context.Background(), g.cfg.Timeouts.WriteStallLimit+time.Second)
	defer cancel()
	g.awaitIdle(last)
	g.stopAccepting()
	return errors.Join(g.stop(last, g.server), g.stop(last, g.admin))
}

// stopAccepting closes the listeners itself: fasthttp knows only those whose
// Serve has already begun to run.
func (g *Gateway) stopAccepting() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	for _, l := range g.listeners {
		_ = l.Listener.Close() // fasthttp closes it again and reports that
	}
}

// stopGrace lets responses that are on their way leave before the remaining,
// idle, connections are closed.
const stopGrace = 150 * time.Millisecond

func (g *Gateway) stop(ctx context.Context, s *fasthttp.Server) error {
	short, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	// Its error is a listener closed before, or connections that are open yet.
	_ = s.ShutdownWithContext(short)
	g.mu.Lock()
	listeners := g.listeners
	g.mu.Unlock()
	for _, l := range listeners {
		l.closeAll()
	}
	// The count leaves out one for an accept loop, which has ended: -1 is none.
	for s.GetOpenConnectionsCount() >= 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("connections stayed open: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func (g *Gateway) awaitIdle(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for g.InFlight() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close releases what New took. Call it after Shutdown.
func (g *Gateway) Close() error { return g.watcher.Close() }

// InFlight is how many generation requests have not ended.
func (g *Gateway) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.live)
}

func (g *Gateway) register(x *exchange) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live[x] = struct{}{}
}

func (g *Gateway) unregister(x *exchange) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, x)
}

// connState undoes, between requests, what a handler did to the connection.
func connState(nc net.Conn, state fasthttp.ConnState) {
	if c, ok := nc.(*conn); ok && state == fasthttp.StateIdle {
		c.mute.Store(false)
		_ = c.Conn.SetWriteDeadline(time.Time{})
	}
}

// generate is the handler of both generation routes. It tells failures, and
// keeps the record, itself.
func (g *Gateway) generate(c *fasthttp.RequestCtx, tenant *admission.Tenant, chat bool) {
	x := g.newExchange(c, tenant, chat)
	var err error
	defer func() { x.end(err) }()
	defer x.recovered(&err)
	err = g.serve(x, tenant)
}
