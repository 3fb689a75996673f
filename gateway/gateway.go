package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/httpd"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// Parts are what a Gateway needs. They belong to the caller, who closes them
// after the Gateway.
type Parts struct {
	Engine wire.Engine
	// Groups are the parts of Engine that serve a model or a route each; none listed
	// leaves every request to Engine.
	Groups    []Group
	Admission admission.Controller
	// Identity says who sends a request, and in which class; nil serves everybody
	// alike.
	Identity *identity.Directory
	// Budget enforces the tenants' limits; nil enforces none.
	Budget   budget.Store
	Recorder *telemetry.Recorder
	// Capture keeps requests for later questions; nil keeps none.
	Capture *capture.Store
	Version string
	// Policy is what /readyz says of the policy of a control plane, as JSON; nil says
	// nothing.
	Policy func() []byte
	// Siblings are the other replicas; nil serves every request here.
	Siblings *siblings.Group
	// Log gets errors of our own; nil is slog.Default.
	Log *slog.Logger
}

// Gateway serves HTTP.
type Gateway struct {
	// Fixed at construction.
	cfg       Config
	engine    wire.Engine
	groups    []Group
	admission admission.Controller
	identity  *identity.Directory
	budget    budget.Store
	recorder  *telemetry.Recorder
	capture   *capture.Store
	version   string
	policy    func() []byte
	since     time.Time
	log       *slog.Logger
	cors      cors
	routes    []route
	clients   *httpd.Server
	admin     *httpd.Server
	siblings  *siblings.Group
	hops      *httpd.Server // nil without siblings

	serials  atomic.Uint64 // of generations so far
	draining atomic.Bool
	cut      chan struct{} // closed when the time to drain is over
	cutOnce  sync.Once

	mu   sync.Mutex
	live map[*exchange]struct{}
	idle chan struct{} // closed when the last exchange ends, and then replaced
}

// Levels returns the reader of the gauges that telemetry shows. store may be nil.
func Levels(a admission.Controller, e wire.Engine, store budget.Store) func() telemetry.Levels {
	return func() telemetry.Levels {
		load, view := a.Load(), a.View()
		l := telemetry.Levels{RequestsRunning: load.Running, RequestsWaiting: load.Waiting, Engine: e.State(), Brownout: view.Brownout}
		l.Lengths = telemetry.LengthLevel(view.Lengths)
		l.Classes, l.Groups = classLevels(view.Classes)
		if store != nil {
			l.LimiterDegraded = store.Degraded()
			for rule, n := range store.Audit().Dry {
				l.LimiterDry = append(l.LimiterDry, telemetry.RuleCount{Rule: budget.Rule(rule).String(), Count: n})
			}
		}
		return l
	}
}

// New makes a Gateway; Close releases it.
func New(cfg Config, p Parts) (*Gateway, error) {
	if err := conf.Complete("gateway", &cfg); err != nil {
		return nil, err
	}
	g := &Gateway{
		cfg: cfg, engine: p.Engine, groups: p.Groups, admission: p.Admission, identity: p.Identity, budget: p.Budget, recorder: p.Recorder, capture: p.Capture, version: p.Version, policy: p.Policy, since: time.Now(), log: p.Log,
		cors: newCORS(cfg.CORSOrigins), cut: make(chan struct{}), live: map[*exchange]struct{}{}, idle: make(chan struct{}),
	}
	if g.identity == nil {
		everybody, err := admission.NewPolicy(admission.Config{})
		if err != nil {
			return nil, err
		}
		g.identity = identity.NewDirectory(identity.Of(everybody))
	}
	if g.log == nil {
		g.log = slog.Default()
	}
	g.siblings = p.Siblings
	g.observe()
	g.routes = g.clientRoutes()
	var err error
	failed := &handshakes{log: g.log}
	g.recorder.CountHandshakes(failed.read)
	api, hops := g.serverConfig(), g.serverConfig()
	api.HandshakeFailed, hops.HandshakeFailed = failed.failed, failed.failed
	if api.TLS, err = openTLS(cfg.TLS, g.log); err != nil {
		return nil, err
	}
	if g.clients, err = httpd.New(api, clientHandler{g}); err != nil {
		return nil, err
	}
	if g.admin, err = httpd.New(g.serverConfig(), g.newAdminPages()); err != nil {
		return nil, errors.Join(err, g.clients.Close())
	}
	if g.siblings != nil {
		if g.hops, err = httpd.New(hops, hopHandler{g}); err != nil {
			return nil, errors.Join(err, g.clients.Close(), g.admin.Close())
		}
	}
	return g, nil
}

func (g *Gateway) serverConfig() httpd.Config {
	l, t := &g.cfg.Limits, &g.cfg.Timeouts
	return httpd.Config{
		ConnectionsMax: l.ConnectionsMax, HeaderBytesMax: l.HeaderBytesMax, BodyBytesMax: l.BodyBytesMax,
		HeaderLimit: t.HeaderLimit, BodyLimit: t.BodyLimit, IdleLimit: t.IdleLimit, WriteStallLimit: t.WriteStallLimit,
	}
}

// Serve answers clients on ln until Shutdown.
func (g *Gateway) Serve(ln net.Listener) error { return g.clients.Serve(ln) }

// ServeAdmin answers the operator on ln until Shutdown.
func (g *Gateway) ServeAdmin(ln net.Listener) error { return g.admin.Serve(ln) }

// StartDraining makes the gateway unready and refuse new requests; running
// ones go on.
func (g *Gateway) StartDraining() {
	g.draining.Store(true)
	if g.siblings != nil {
		g.siblings.Leave()
	}
}

// Shutdown drains: new requests get 503 at once, running ones may finish until
// ctx ends and are then cut with an error. It returns when all connections are
// closed.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.StartDraining()
	g.awaitIdle(ctx)
	g.cutOnce.Do(func() { close(g.cut) })
	// A request that was cut has one write left, which the stall limit bounds.
	last, cancel := context.WithTimeout(context.Background(), g.cfg.Timeouts.WriteStallLimit+time.Second)
	defer cancel()
	g.awaitIdle(last)
	g.clients.StopAccepting()
	g.admin.StopAccepting()
	var err error
	if g.hops != nil {
		g.hops.StopAccepting()
		err = g.hops.Stop(last)
	}
	return errors.Join(err, g.clients.Stop(last), g.admin.Stop(last))
}

// awaitIdle returns when no generation request is in flight, or when ctx ends.
func (g *Gateway) awaitIdle(ctx context.Context) {
	for {
		g.mu.Lock()
		idle, live := g.idle, len(g.live)
		g.mu.Unlock()
		if live == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-idle:
		}
	}
}

// Close releases what New took. Call it after Shutdown.
func (g *Gateway) Close() error {
	var err error
	if g.hops != nil {
		err = g.hops.Close()
	}
	return errors.Join(err, g.clients.Close(), g.admin.Close())
}

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
	if delete(g.live, x); len(g.live) == 0 {
		close(g.idle)
		g.idle = make(chan struct{})
	}
}

// generate handles the routes that the engine answers. It answers failures and finishes the
// record itself.
func (g *Gateway) generate(c httpd.Request, caller *identity.Caller, r *route) {
	x := g.newExchange(c, caller, r)
	var err error
	defer func() { x.end(err) }()
	defer x.recovered(&err)
	err = g.serve(x, &caller.Tenant)
}
