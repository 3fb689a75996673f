package cli

import (
	"fmt"
	"net"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/xds/ratelimit"
)

// EnvoyConfig configures what the gateway answers to proxies.
type EnvoyConfig struct {
	Listen     string `yaml:"listen" help:"Address of Envoy's rate limit service over the tenants' budgets, as host:port or unix:/PATH; empty is none. It speaks plain gRPC and believes who asks, so keep it on this machine."`
	Shadow     bool   `yaml:"shadow" help:"Answers OK in any case, and counts what would have been over the limit."`
	StreamsMax int    `yaml:"streams_max" default:"1024" range:"1..1000000" help:"Questions at the same time on one connection."`
}

// unixPrefix begins the address of a Unix socket.
const unixPrefix = "unix:"

// openEnvoy opens the address for proxies, if there is one.
func (f *front) openEnvoy(budgets budget.Store, recorder *telemetry.Recorder) error {
	cfg := &f.cfg.Envoy
	if cfg.Listen == "" {
		return nil
	}
	var err error
	if path, ok := strings.CutPrefix(cfg.Listen, unixPrefix); ok {
		f.proxies, err = wire.Listen(path)
	} else {
		f.proxies, err = net.Listen("tcp", cfg.Listen)
	}
	if err != nil {
		return fmt.Errorf("envoy.listen: %w", err)
	}
	f.closers = append(f.closers, func() { f.proxies.Close() })
	limits := ratelimit.New(ratelimit.Config{
		Directory: f.identity.Directory(), Store: budgets, Shadow: cfg.Shadow,
		Model: func() string { return f.engine().State().Model.ID },
	})
	recorder.CountRateLimit(func() []telemetry.ReasonCount {
		var list []telemetry.ReasonCount
		for i, n := range limits.Counts() {
			list = append(list, telemetry.ReasonCount{Reason: ratelimit.ResultNames[i], Count: n})
		}
		return list
	})
	const questionBytesMax = 256 << 10
	f.envoy = grpc.NewServer(
		grpc.MaxConcurrentStreams(uint32(cfg.StreamsMax)), grpc.MaxRecvMsgSize(questionBytesMax),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	rlsv3.RegisterRateLimitServiceServer(f.envoy, limits)
	f.closers = append(f.closers, f.envoy.Stop)
	return nil
}
