package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	redisbudget "github.com/forebay-io/forebay/admission/budget/shared"
	"github.com/forebay-io/forebay/gateway"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/identity"
	"github.com/forebay-io/forebay/gateway/siblings"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/gateway/usage"
	"github.com/forebay-io/forebay/internal/supervise"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream"
	"github.com/forebay-io/forebay/xds"
)

// front is the gateway with its addresses and its client of the engine. openFront
// builds it, run serves and drains, close releases it.
type front struct {
	cfg      *Config
	settings *settings
	console  *console
	api      net.Listener // nil where it is off
	admin    net.Listener // nil where it is off
	socket   net.Listener // of the API too, nil for none
	client   client
	view     engineView
	gateway  *gateway.Gateway
	queue    *admission.Groups
	siblings *siblings.Group // nil without
	hops     net.Listener    // of siblings; nil without
	identity *identity.Source
	envoy    *grpc.Server // of proxies' questions, nil for none
	proxies  net.Listener
	door     door
	xds      *xds.Client       // nil without a control plane
	classes  []admission.Class // that hold; guarded by door.mu
	closers  []func()          // in the order of building
}

// openFront opens the addresses first, so that a second instance fails before it
// has started anything. child is the supervised engine, nil if another process
// owns the engine.
func openFront(c *console, s *settings, child *supervise.Supervisor) (f *front, err error) {
	cfg := &s.Config
	f = &front{cfg: cfg, settings: s, console: c}
	defer func(built *front) {
		if err != nil {
			built.close()
		}
	}(f)
	if err = f.openListeners(); err != nil {
		return nil, err
	}
	queue, err := admission.NewGroups(cfg.Admission, groupNames(cfg.Upstream.Groups), gateway.Clock)
	if err != nil {
		return nil, err
	}
	f.queue = queue
	f.closers = append(f.closers, queue.Close)
	if f.identity, err = identity.Open(cfg.Identity, cfg.Admission, c.logger(cfg.Log, "gateway")); err != nil {
		return nil, err
	}
	f.door.own = s
	if f.classes, err = cfg.Admission.ClassTable(); err != nil {
		return nil, err
	}
	if err := f.openPolicy(); err != nil {
		return nil, err
	}
	budgets, err := openBudgets(cfg.Budget, c.logger(cfg.Log, "gateway"))
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, budgets.Close)
	kept, err := f.openCapture()
	if err != nil {
		return nil, err
	}
	recorder, err := telemetry.New(cfg.Telemetry, c.records, func() telemetry.Levels { return gateway.Levels(queue, f.engine(), budgets)() })
	if err != nil {
		return nil, err
	}
	recorder.Version(version)
	recorder.CountIdentity(func() telemetry.IdentityCounts { return identityCounts(f.identity, time.Now()) })
	if err := f.exportUsage(recorder); err != nil {
		return nil, err
	}
	if f.xds != nil {
		recorder.CountPolicy(f.policyCounts)
		f.xds.TellHealth(func() xds.Health { return xds.Health(recorder.Health()) })
	}
	if err := f.openSiblings(recorder); err != nil {
		return nil, err
	}
	if err := f.openEnvoy(budgets, recorder); err != nil {
		return nil, err
	}
	f.view.child, f.view.path, f.view.log = child, cfg.Socket.Path, c.logger(cfg.Log, "gateway")
	if err := f.openGateway(gateway.Parts{Admission: queue, Budget: budgets, Recorder: recorder, Capture: kept}); err != nil {
		return nil, err
	}
	return f, nil
}

// openGateway connects to the engine, whose states all parts hear of, and starts the
// gateway before it. It fills in the rest of parts.
func (f *front) openGateway(parts gateway.Parts) (err error) {
	recorder, kept := parts.Recorder, parts.Capture
	err = f.connect(func(s *wire.State) {
		recorder.Heard(s)
		kept.Heard(s)
		if f.siblings != nil {
			f.siblings.Heard(s)
		}
	})
	if err != nil {
		return err
	}
	f.closers = append(f.closers, func() { f.client.Close() })
	parts.Groups = f.groups()
	parts.Engine, parts.Identity, parts.Siblings = f.engine(), f.identity.Directory(), f.siblings
	parts.Version, parts.Policy, parts.Log = version, f.policyNote(), f.console.logger(f.cfg.Log, "gateway")
	if f.gateway, err = gateway.New(f.cfg.Gateway, parts); err != nil {
		return err
	}
	f.closers = append(f.closers, func() { f.gateway.Close() })
	return nil
}

// client is the gateway's end of an engine: a socket, or another server.
type client interface {
	wire.Engine
	WaitReady(ctx context.Context) error
	Close() error
}

// connect begins to look for the engine. The queue and heard get every state, in order.
func (f *front) connect(heard func(*wire.State)) (err error) {
	cfg := f.cfg
	if len(cfg.Upstream.Groups) > 0 {
		f.client, err = f.connectGroups(heard)
		return err
	}
	var reporter gateway.Reporter
	both := func(s *wire.State) {
		f.queue.Report(reporter.Report(s))
		heard(s)
	}
	if cfg.Upstream.On() {
		cfg.Upstream.Version, cfg.Upstream.Log, cfg.Upstream.OnState = version, f.console.logger(cfg.Log, "gateway"), both
		if cfg.Upstream.Counter, err = openCounter(cfg.Upstream.Tokenizer); err != nil {
			return err
		}
		f.client, err = upstream.New(cfg.Upstream)
		return err
	}
	cfg.Socket.Version, cfg.Socket.OnState = version, func(s *wire.State) {
		f.view.heard(s)
		both(s)
	}
	f.client, err = wire.NewClient(cfg.Socket)
	return err
}

// engine returns the client with errors rewritten for clients.
func (f *front) engine() wire.Engine {
	if socket, ok := f.client.(*wire.Client); ok {
		return explained{socket, &f.view}
	}
	return f.client
}

// openCapture opens the store of kept requests and the exporter of their spans.
func (f *front) openCapture() (*capture.Store, error) {
	log := f.console.logger(f.cfg.Log, "gateway")
	f.cfg.Spans.Environ, f.cfg.Spans.Version, f.cfg.Spans.Log = f.console.environ, version, log
	exporter, err := spans.New(f.cfg.Spans)
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, exporter.Close)
	kept, err := capture.New(f.cfg.Capture, exporter, log)
	if err != nil {
		return nil, err
	}
	f.closers = append(f.closers, kept.Close)
	return kept, nil
}

// exportUsage writes a line for each request that ran, if a file is configured.
func (f *front) exportUsage(recorder *telemetry.Recorder) error {
	w, err := usage.Open(f.cfg.Usage, f.console.logger(f.cfg.Log, "gateway"), nil)
	if err != nil || w == nil {
		return err
	}
	f.closers = append(f.closers, w.Close)
	recorder.ExportTo(w.Add)
	recorder.CountUsage(w.Counts)
	return nil
}

// openSiblings joins the siblings, if there are any.
func (f *front) openSiblings(recorder *telemetry.Recorder) (err error) {
	cfg := &f.cfg.Siblings
	if !cfg.On() {
		return nil
	}
	if f.hops, err = f.listen("siblings.listen", cfg.Listen); err != nil {
		return err
	}
	if f.api != nil {
		cfg.API = f.api.Addr()
	}
	if f.siblings, err = siblings.Open(*cfg, f.hops.Addr(), f.queue, version, f.console.logger(f.cfg.Log, "gateway")); err != nil {
		return err
	}
	f.closers = append(f.closers, f.siblings.Close)
	recorder.CountSiblings(f.siblings.Metrics)
	return nil
}

// openBudgets opens the configured store of budgets.
func openBudgets(cfg budget.Config, log *slog.Logger) (budget.Store, error) {
	if cfg.Store == "" {
		return budget.NewLocal(cfg, nil), nil
	}
	return redisbudget.Open(cfg, log, nil)
}

// openListeners opens the addresses of clients and of operators.
func (f *front) openListeners() (err error) {
	if f.cfg.Listen != addressOff {
		if f.api, err = f.listen("listen", f.cfg.Listen); err != nil {
			return err
		}
	}
	if err = f.listenSocket(); err != nil {
		return err
	}
	if f.cfg.Admin != addressOff {
		f.admin, err = f.listen("admin", f.cfg.Admin)
	}
	return err
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

// listenSocket opens the Unix socket of the API, if there is one.
func (f *front) listenSocket() error {
	path := f.cfg.ListenSocket
	if path == "" {
		return nil
	}
	ln, err := wire.Listen(path)
	if err != nil {
		return fmt.Errorf("listen_socket: %w", err)
	}
	f.closers = append(f.closers, func() { ln.Close() })
	mode, err := strconv.ParseUint(f.cfg.ListenSocketMode, 8, 32)
	if err == nil {
		err = os.Chmod(path, os.FileMode(mode))
	}
	if err != nil {
		return fmt.Errorf("listen_socket_mode: %w", err)
	}
	f.socket = ln
	return nil
}

// close releases what openFront built, in reverse order.
func (f *front) close() {
	for _, closer := range slices.Backward(f.closers) {
		closer()
	}
}

// run serves until ctx ends, then lets running streams finish within the drain limit.
func (f *front) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	following := make(chan struct{})
	go func() {
		defer close(following)
		f.followPolicy(ctx)
	}()
	if err := f.awaitPolicy(ctx); err != nil {
		cancel()
		<-following
		return err
	}
	served, servers := f.startServers()
	greeted, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		f.identity.Run(ctx)
	}()
	reloading := make(chan struct{})
	go func() {
		defer close(reloading)
		f.reloadOnHangUp(ctx)
	}()
	go func() {
		defer close(greeted)
		if f.client.WaitReady(ctx) == nil && !f.settings.beside {
			f.greet(f.console.err)
		}
	}()
	var err, why error
	select {
	case <-ctx.Done():
		why = context.Cause(ctx)
	case err = <-served:
		why = err
		servers--
	}
	cancel()
	<-greeted
	<-watched
	<-reloading
	<-following
	f.drain(why)
	if f.envoy != nil {
		f.envoy.Stop() // till now, since proxies charge for streams at their end
	}
	for range servers {
		err = errors.Join(err, <-served)
	}
	return err
}

// startServers serves every listener that is open. Each of the servers sends to served
// once, when it ends.
func (f *front) startServers() (served chan error, servers int) {
	served = make(chan error, 5)
	start := func(ln net.Listener, serve func(net.Listener) error) {
		if ln != nil {
			servers++
			go func() { served <- serve(ln) }()
		}
	}
	start(f.api, f.gateway.Serve)
	start(f.socket, f.gateway.Serve)
	start(f.hops, f.gateway.ServeSiblings)
	start(f.admin, f.gateway.ServeAdmin)
	if f.envoy != nil {
		start(f.proxies, f.envoy.Serve)
	}
	return served, servers
}

// drain lets running requests finish within the drain limit; the gateway cuts the rest.
func (f *front) drain(why error) {
	log := f.console.logger(f.cfg.Log, "gateway")
	if why == errEngineEnded {
		log = slog.New(slog.DiscardHandler)
	}
	log.Info("stopping: running requests may finish", "reason", why, "requests", f.gateway.InFlight(), "drain_limit", f.cfg.DrainLimit)
	limit, cut := context.WithCancel(context.Background())
	defer cut()
	timer := time.AfterFunc(f.cfg.DrainLimit, func() {
		log.Warn("the drain limit is over: the remaining requests are cut", "requests", f.gateway.InFlight())
		cut()
	})
	f.gateway.Shutdown(limit)
	f.view.stopping.Store(true)
	if timer.Stop() {
		log.Info("drained: every request has finished")
	}
}

// greet prints what is served, where, and how to try it.
func (f *front) greet(w io.Writer) {
	model := f.client.State().Model
	served := model.ID
	url, ask := "unix:"+f.cfg.ListenSocket, "--unix-socket "+f.cfg.ListenSocket+" http://forebay"
	if f.api != nil {
		url = f.cfg.Gateway.TLS.Scheme() + reachable(f.api.Addr().String())
		ask = url
	}
	by := "by " + model.Kernels + " kernels"
	if model.Device != "" && model.Device != "cpu" {
		by += " on " + model.Device
	}
	if relay, ok := f.client.(relay); ok {
		served = cmp.Or(strings.Join(modelIDs(f.cfg.Upstream.Groups), ", "), served)
		by = "relayed to " + relay.Name() + " at " + relay.Addresses()
	}
	fmt.Fprintf(w, "Forebay %s serves %s at %s, %s\n", version, served, url, by)
	if f.admin != nil {
		fmt.Fprintf(w, "Metrics and debug pages: http://%s/metrics\n", reachable(f.admin.Addr().String()))
	}
	if model.Ranks {
		fmt.Fprintf(w, "Try: curl %s/v1/rerank -H 'Content-Type: application/json' -d '{\"model\": %q, \"query\": \"Hello!\", \"documents\": [\"Good morning.\", \"Good bye.\"]}'\n", ask, model.ID)
		return
	}
	if model.EmbeddingWidth > 0 {
		fmt.Fprintf(w, "Try: curl %s/v1/embeddings -H 'Content-Type: application/json' -d '{\"model\": %q, \"input\": \"Hello!\"}'\n", ask, model.ID)
		return
	}
	fmt.Fprintf(w, "Try: curl -N %s/v1/chat/completions -H 'Content-Type: application/json' \\\n", ask)
	fmt.Fprintf(w, "  -d '{\"model\": %q, \"stream\": true, \"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n", model.ID)
}
