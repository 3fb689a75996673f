package cli

import (
	"context"
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
	"github.com/forebay-io/forebay/xds/picker"
	"github.com/forebay-io/forebay/xds/ratelimit"
)

// EnvoyConfig configures what the gateway answers to proxies.
type EnvoyConfig struct {
	Listen     string `yaml:"listen" help:"Address of Envoy's rate limit service over the tenants' budgets, and of the endpoint picker if that is on, as host:port or unix:/PATH; empty is none. It speaks plain gRPC and believes who asks, so keep it on this machine."`
	Shadow     bool   `yaml:"shadow" help:"Answers OK in any case, and counts what would have been over the limit."`
	StreamsMax int    `yaml:"streams_max" default:"1024" range:"1..1000000" help:"Questions at the same time on one connection; to the endpoint picker each request is one until its end."`

	ConnsMax int `yaml:"connections_max" default:"256" range:"1..65536" help:"Connections of proxies at a time; further ones wait until one ends. An Envoy has one for each of its threads."`

	Picker picker.Config `yaml:"picker"`
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
	f.proxies = newFewConns(f.proxies, cfg.ConnsMax)
	f.closers = append(f.closers, func() { f.proxies.Close() })
	limits := ratelimit.New(ratelimit.Config{
		Directory: f.identity.Directory(), Store: budgets, Shadow: cfg.Shadow,
		Model: func() string { return f.engine().State().Model.ID },
		Took:  func(took time.Duration) { recorder.ProxyAnswered(telemetry.RateLimit, took) },
	})
	recorder.CountRateLimit(func() []telemetry.ReasonCount {
		counts := limits.Counts()
		return reasonCounts(ratelimit.ResultNames[:], counts[:])
	})
	questionBytesMax := 256 << 10
	options := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(uint32(cfg.StreamsMax)),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if cfg.Picker.On {
		questionBytesMax = max(questionBytesMax, cfg.Picker.BodyMax+(64<<10))
		options = append(options, picker.Codec(), grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(16<<20))
	}
	f.envoy = grpc.NewServer(append(options, grpc.MaxRecvMsgSize(questionBytesMax))...)
	rlsv3.RegisterRateLimitServiceServer(f.envoy, limits)
	if cfg.Picker.On {
		if err := f.openPicker(recorder); err != nil {
			return err
		}
	}
	f.closers = append(f.closers, f.envoy.Stop)
	return nil
}

// streamWindow bounds what a proxy may send of a body that the picker has no room for
// yet. The window grows to the message once that is asked for.
const streamWindow = 64 << 10

// openPicker answers proxies that ask where a request goes.
func (f *front) openPicker(recorder *telemetry.Recorder) error {
	picks, err := picker.New(f.cfg.Envoy.Picker, picker.Parts{
		Directory: f.identity.Directory(), Pick: f.siblings.Pick, Able: f.siblings.Able,
		Read: func(ctx context.Context, path string, body []byte, tenant string) (*wire.Prompt, error) {
			return f.gateway.Preview(ctx, path, body, tenant)
		},
		PageTokens: func() int { return f.engine().State().Model.PageTokens },
		Took:       func(took time.Duration) { recorder.ProxyAnswered(telemetry.Picker, took) },
		Log:        f.console.logger(f.cfg.Log, "gateway"),
	})
	if err != nil {
		return err
	}
	picks.Register(f.envoy)
	recorder.CountPicks(func() []telemetry.ReasonCount {
		counts := picks.Counts()
		return reasonCounts(picker.ResultNames[:], counts[:])
	})
	f.closers = append(f.closers, picks.Close)
	return nil
}

func reasonCounts(names []string, counts []uint64) (list []telemetry.ReasonCount) {
	for i, n := range counts {
		list = append(list, telemetry.ReasonCount{Reason: names[i], Count: n})
	}
	return list
}
