package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xdslog "github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// Server is a control plane.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	controlpb.UnimplementedControlServiceServer

	// Fixed at construction.
	cfg   Config
	log   *slog.Logger
	cache cache.SnapshotCache
	grpc  *grpc.Server
	sotw  sotw.Server
	delta delta.Server

	// Owned by Run: the signatures of the folder at the last look, and at the last
	// reading.
	seen, tried string
	files       *Files
	failed      time.Time // when a reading last failed, zero if the last one did not

	mu    sync.Mutex
	trial trial
	taken time.Time
	wrong string // why the files as they are now are not served
	nodes nodes
}

// New reads the folder; any mistake in it is an error. The server ends with ctx.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	if err := conf.Complete("control", &cfg); err != nil {
		return nil, err
	}
	if cfg.Dir == "" {
		return nil, errors.New("dir: is missing: give the folder of policy files")
	}
	if cfg.API != "" {
		if _, err := cfg.token(); err != nil {
			return nil, fmt.Errorf("api_token_file: %w", err)
		}
	}
	s := &Server{cfg: cfg, log: log, nodes: newNodes()}
	s.trial.rule = newRule(&cfg)
	s.seen = signature(cfg.Dir, cfg.FilesMax, nil)
	sets, err := s.read()
	if err != nil {
		return nil, err
	}
	s.trial.offer(sets, time.Now())
	s.taken = time.Now()
	s.seen = signature(cfg.Dir, cfg.FilesMax, s.files.named())
	s.tried = s.seen
	s.cache = cache.NewSnapshotCache(false, nodeKey{}, nil)
	quiet := xdslog.NewDefaultLogger()
	s.sotw = sotw.NewServer(ctx, guard{s.cache, s}, callbacks{s}, sotw.WithLogger(quiet))
	s.delta = delta.NewServer(ctx, guard{s.cache, s}, callbacks{s}, delta.WithLogger(quiet))
	options, err := s.options()
	if err != nil {
		return nil, err
	}
	s.grpc = grpc.NewServer(options...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	controlpb.RegisterControlServiceServer(s.grpc, s)
	return s, nil
}

// streamsMax bounds the streams of one connection: a client needs one, and few tools
// need more.
const streamsMax = 100

func (s *Server) options() ([]grpc.ServerOption, error) {
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(streamsMax),
		// A client that is gone without a word is noticed, and others may ask as often
		// as proxies do.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if s.cfg.TLSCert == "" {
		return options, nil
	}
	if _, err := s.tls(); err != nil {
		return nil, err
	}
	return append(options, grpc.Creds(credentials.NewTLS(s.TLS()))), nil
}

// TLS is what connections are encrypted by, nil for plain text.
func (s *Server) TLS() *tls.Config {
	if s.cfg.TLSCert == "" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls() }}
}

// tls reads the server's certificate as it is now.
func (s *Server) tls() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(s.cfg.TLSCert, s.cfg.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("tls_cert: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if s.cfg.TLSClientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(s.cfg.TLSClientCA)
	if err != nil {
		return nil, fmt.Errorf("tls_client_ca: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls_client_ca: %s holds no certificate", s.cfg.TLSClientCA)
	}
	return config, nil
}

// Serve answers on ln until Stop.
func (s *Server) Serve(ln net.Listener) error { return s.grpc.Serve(ln) }

// Stop ends all streams and waits for them.
func (s *Server) Stop() { s.grpc.Stop() }

// Run looks at the folder, and decides about versions on trial, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.Look(now)
		}
	}
}

// Look takes the files of the folder if they have changed and are the same as at the
// last look: files that are being written wait for the next one.
func (s *Server) Look(now time.Time) {
	before := s.seen
	s.seen = signature(s.cfg.Dir, s.cfg.FilesMax, s.files.named())
	// The cause of a failure may lie where nobody looks, as in a file that is not there.
	again := !s.failed.IsZero() && now.Sub(s.failed) >= retryWait
	if s.seen == before && (s.seen != s.tried || again) {
		s.take(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if word := s.trial.decide(s.nodes.all(), now); word != "" {
		s.log.Info("control: "+word, "version", s.trial.version())
		s.publish()
	}
}

// retryWait is the time after which files that were not taken are read again, though
// they look the same.
const retryWait = 5 * time.Second

// read makes what clients are given of the folder.
func (s *Server) read() (*Sets, error) {
	files, err := Read(s.cfg.Dir, s.cfg.FilesMax, s.cfg.BytesMax)
	if err != nil {
		return nil, err
	}
	sets, err := Build(files)
	if err != nil {
		return nil, err
	}
	s.files = files
	return sets, nil
}

// take reads the folder, and serves it if nothing is wrong with it.
func (s *Server) take(now time.Time) {
	s.tried = s.seen
	sets, err := s.read()
	if s.failed = now; err == nil {
		s.failed = time.Time{}
		// The files of certificates may be others now.
		again := signature(s.cfg.Dir, s.cfg.FilesMax, s.files.named())
		s.seen, s.tried = again, again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.wrong != err.Error() {
			s.wrong = err.Error()
			s.log.Error("control: the policy files were not taken, what was served before goes on", "error", err)
		}
		return
	}
	s.wrong = ""
	s.taken = now
	if s.trial.offer(sets, now) {
		for _, n := range s.nodes.byKey {
			n.rebase()
		}
		s.log.Info("control: the policy files were taken", "version", sets.Version, "files", len(s.files.Files), "nodes", len(s.nodes.byKey), "trial", s.trial.next != nil)
		s.publish()
	}
}

// publishLimit bounds what a stalled client may cost the others. Channels of watches
// have room for each answer, so that nothing waits.
const publishLimit = time.Second

// publish gives every connected node what it should have. The caller holds mu.
func (s *Server) publish() {
	ctx, cancel := context.WithTimeout(context.Background(), publishLimit)
	defer cancel()
	for key, n := range s.nodes.byKey {
		if err := s.cache.SetSnapshot(ctx, key, s.trial.of(n.canary).of(n.kind)); err != nil {
			s.log.Error("control: a node was not told", "node", n.id, "error", err)
		}
	}
}

// admit makes n known to the cache. The caller holds mu.
func (s *Server) admit(key string, n *node) error {
	return s.cache.SetSnapshot(context.Background(), key, s.trial.of(n.canary).of(n.kind))
}

// Version is that of the newest version that some node gets.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trial.version()
}
