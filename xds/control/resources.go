package control

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rlsconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/ratelimit/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forebay-io/forebay/xds"
	"github.com/forebay-io/forebay/xds/controlpb"
	"github.com/forebay-io/forebay/xds/policy"
)

// The types of resources, as their URLs.
const (
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routeType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	clusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	secretType   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// typesOf are the types that a kind of client is given.
var typesOf = map[Kind][]string{
	Envoy:   {clusterType, endpointType, listenerType, routeType, secretType},
	GRPC:    {clusterType, endpointType, listenerType, routeType},
	Forebay: {xds.PolicyType},
}

// items are the resources of a kind of client, by type and name.
func (f *Files) items(kind Kind) (map[string]map[string]types.Resource, error) {
	all := map[string]map[string]types.Resource{}
	if kind == Forebay {
		for _, file := range f.Files {
			if f.Policy.ForGateways(file.Name) {
				add(all, xds.PolicyType, file.Name, &controlpb.PolicyFile{Name: file.Name, Text: string(file.Text), TtlMs: f.Policy.TTL(file.Name).Milliseconds()})
			}
		}
		return all, nil
	}
	b := &builder{kind: kind, mesh: &f.Policy.Mesh}
	for _, l := range b.mesh.Listeners {
		if kind == Envoy && l.Address == "" || kind == GRPC && l.Certificate != "" {
			continue
		}
		add(all, listenerType, l.Name, b.listener(&l))
		add(all, routeType, l.Name, b.routes(&l))
	}
	for _, c := range b.mesh.Clusters {
		if kind == GRPC && c.Certificate != "" {
			continue // gRPC clients take certificates from their own bootstrap alone
		}
		add(all, clusterType, c.Name, b.cluster(&c))
		add(all, endpointType, c.Name, b.endpoints(&c))
	}
	if kind == Envoy {
		for _, c := range b.mesh.Certificates {
			f.addSecrets(all, &c)
		}
	}
	return all, b.err
}

// builder makes Envoy's messages. Its first failure stays in err.
type builder struct {
	kind Kind
	mesh *policy.Mesh
	err  error
}

// pack wraps a message, the same way every time.
func (b *builder) pack(m proto.Message) *anypb.Any {
	packed := new(anypb.Any)
	if err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true}); err != nil && b.err == nil {
		b.err = err
	}
	return packed
}

// overADS says that a resource comes by the same stream.
func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ResourceApiVersion: corev3.ApiVersion_V3, ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func (b *builder) listener(l *policy.Listener) *listenerv3.Listener {
	connections := &hcmv3.HttpConnectionManager{
		StatPrefix:     l.Name,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: l.Name}},
		HttpFilters:    []*hcmv3.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.pack(&routerv3.Router{})}}},
	}
	if b.kind == GRPC {
		return &listenerv3.Listener{Name: l.Name, ApiListener: &listenerv3.ApiListener{ApiListener: b.pack(connections)}}
	}
	if l.Picker != "" {
		connections.HttpFilters = slices.Insert(connections.HttpFilters, 0, b.picker(l))
	}
	if l.Limits != "" {
		connections.HttpFilters = slices.Insert(connections.HttpFilters, 0, b.limits(l.Limits))
	}
	connections.StreamIdleTimeout = durationpb.New(0) // the first token may take long
	connections.UseRemoteAddress = wrapperspb.Bool(true)
	chain := &listenerv3.FilterChain{}
	if l.Certificate != "" {
		connections.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
		connections.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Uri: true}
		chain.TransportSocket = b.transport(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: b.tls(l.Certificate, "h2", "http/1.1"), RequireClientCertificate: wrapperspb.Bool(b.certificate(l.Certificate).CA != ""),
		})
	}
	chain.Filters = []*listenerv3.Filter{{Name: "envoy.filters.network.http_connection_manager", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: b.pack(connections)}}}
	m := &listenerv3.Listener{Name: l.Name, Address: address(l.Address), FilterChains: []*listenerv3.FilterChain{chain}}
	if l.Picker != "" {
		m.PerConnectionBufferLimitBytes = wrapperspb.UInt32(uint32(l.BufferMax))
	}
	return m
}

// limits asks a gateway's rate limit service. A service that does not answer refuses
// nothing.
func (b *builder) limits(cluster string) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: "envoy.filters.http.ratelimit", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.pack(&limitv3.RateLimit{
		Domain: "forebay", Timeout: durationpb.New(200 * time.Millisecond), EnableXRatelimitHeaders: limitv3.RateLimit_DRAFT_VERSION_03,
		RateLimitService: &rlsconfigv3.RateLimitServiceConfig{TransportApiVersion: corev3.ApiVersion_V3, GrpcService: &corev3.GrpcService{
			TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster}},
		}},
	})}}
}

// byKey is the one descriptor of a request: its API key.
var byKey = []*routev3.RateLimit{{Actions: []*routev3.RateLimit_Action{{ActionSpecifier: &routev3.RateLimit_Action_RequestHeaders_{
	RequestHeaders: &routev3.RateLimit_Action_RequestHeaders{HeaderName: "authorization", DescriptorKey: "authorization"},
}}}}}

func address(text string) *corev3.Address {
	if path, ok := strings.CutPrefix(text, policy.UnixPrefix); ok {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	host, port := policy.SplitAddress(text)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// anyDomain is a virtual host for all hosts.
const anyDomain = "*"

// routes are those of a listener. Envoy looks for the host first, so that each host
// has all routes that are for it, in the order of the files.
func (b *builder) routes(l *policy.Listener) *routev3.RouteConfiguration {
	config := &routev3.RouteConfiguration{Name: l.Name}
	domains := []string{}
	for _, r := range b.mesh.Routes {
		for _, d := range domainsOf(&r) {
			if (r.Listener == "" || r.Listener == l.Name) && !slices.Contains(domains, d) {
				domains = append(domains, d)
			}
		}
	}
	for _, d := range domains {
		host := &routev3.VirtualHost{Name: d, Domains: []string{d}}
		for _, r := range b.mesh.Routes {
			if (r.Listener == "" || r.Listener == l.Name) && slices.ContainsFunc(domainsOf(&r), func(of string) bool { return covers(of, d) }) {
				host.Routes = append(host.Routes, b.route(&r, l))
			}
		}
		config.VirtualHosts = append(config.VirtualHosts, host)
	}
	return config
}

func domainsOf(r *policy.Route) []string {
	if len(r.Domains) == 0 {
		return []string{anyDomain}
	}
	return r.Domains
}

// covers reports whether what is for the hosts of pattern is for domain too.
func covers(pattern, domain string) bool {
	suffix, wild := strings.CutPrefix(pattern, "*")
	return pattern == domain || wild && strings.HasSuffix(domain, suffix)
}

func (b *builder) route(r *policy.Route, l *policy.Listener) *routev3.Route {
	action := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: r.Cluster}}
	if b.kind == Envoy {
		action.Timeout = durationpb.New(r.Limit)
		if l.Limits != "" {
			action.RateLimits = byKey
		}
		// Nothing has reached an endpoint in either case, so another may be asked.
		action.RetryPolicy = &routev3.RetryPolicy{RetryOn: "connect-failure,refused-stream", NumRetries: wrapperspb.UInt32(2)}
	} else if r.Limit > 0 {
		action.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(r.Limit)}
	}
	m := &routev3.Route{Name: r.Name, Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: r.Prefix}}, Action: &routev3.Route_Route{Route: action}}
	if b.kind == Envoy && l.Picker != "" && !b.follows(r.Cluster) {
		m.TypedPerFilterConfig = b.unpicked()
	}
	return m
}

var balances = map[string]clusterv3.Cluster_LbPolicy{
	"least_request": clusterv3.Cluster_LEAST_REQUEST, "round_robin": clusterv3.Cluster_ROUND_ROBIN, "random": clusterv3.Cluster_RANDOM,
}

func (b *builder) cluster(c *policy.Cluster) *clusterv3.Cluster {
	m := &clusterv3.Cluster{
		Name: c.Name, ConnectTimeout: durationpb.New(c.ConnectLimit), LbPolicy: balances[c.Balance],
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS(), ServiceName: c.Name},
	}
	if b.kind == GRPC {
		m.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		return m
	}
	if c.Balance == policy.BalancePicker {
		m.LoadBalancingPolicy = b.picked()
	}
	most := wrapperspb.UInt32(uint32(c.RequestsMax))
	m.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxConnections: most, MaxPendingRequests: most, MaxRequests: most}}}
	if c.HTTP2 {
		m.TypedExtensionProtocolOptions = map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": b.pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
			}},
		})}
	}
	if c.Health != "" {
		const interval = 2 * time.Second
		m.HealthChecks = []*corev3.HealthCheck{{
			Timeout: durationpb.New(time.Second), Interval: durationpb.New(interval), NoTrafficInterval: durationpb.New(interval),
			HealthyThreshold: wrapperspb.UInt32(1), UnhealthyThreshold: wrapperspb.UInt32(2),
			HealthChecker: &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &corev3.HealthCheck_HttpHealthCheck{Path: c.Health}},
		}}
		m.IgnoreHealthOnHostRemoval = true // an endpoint that the files no longer name is gone
	}
	if c.Certificate != "" {
		m.TransportSocket = b.transport(&tlsv3.UpstreamTlsContext{CommonTlsContext: b.tls(c.Certificate)})
	}
	return m
}

func (b *builder) endpoints(c *policy.Cluster) *endpointv3.ClusterLoadAssignment {
	// gRPC clients take no locality without a name and a weight.
	group := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Zone: "all"}, LoadBalancingWeight: wrapperspb.UInt32(1)}
	for _, e := range c.Endpoints {
		if b.kind == GRPC && strings.HasPrefix(e, policy.UnixPrefix) {
			continue // gRPC clients take none in EDS
		}
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(e)}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: c.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{group}}
}

func (b *builder) certificate(name string) policy.Certificate {
	i := slices.IndexFunc(b.mesh.Certificates, func(c policy.Certificate) bool { return c.Name == name })
	return b.mesh.Certificates[i] // Mistakes has checked that it exists
}

func (b *builder) transport(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: b.pack(context)}}
}

// caOf is the name of the secret with a certificate's authorities.
func caOf(name string) string { return name + "/ca" }

// tls takes a certificate from SDS.
func (b *builder) tls(name string, protocols ...string) *tlsv3.CommonTlsContext {
	c := b.certificate(name)
	common := &tlsv3.CommonTlsContext{AlpnProtocols: protocols}
	if c.Chain != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{{Name: name, SdsConfig: overADS()}}
	}
	if c.CA != "" {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
			ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: caOf(name), SdsConfig: overADS()},
		}
	}
	return common
}

func inline(text []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}

func (f *Files) addSecrets(all map[string]map[string]types.Resource, c *policy.Certificate) {
	if c.Chain != "" {
		add(all, secretType, c.Name, &tlsv3.Secret{Name: c.Name, Type: &tlsv3.Secret_TlsCertificate{
			TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline(f.PEM[c.Chain]), PrivateKey: inline(f.PEM[c.Key])},
		}})
	}
	if c.CA != "" {
		add(all, secretType, caOf(c.Name), &tlsv3.Secret{Name: caOf(c.Name), Type: &tlsv3.Secret_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(f.PEM[c.CA])},
		}})
	}
}

// checkCertificate refuses files that no proxy would take.
func (f *Files) checkCertificate(c *policy.Certificate) error {
	if c.Chain != "" {
		if _, err := tls.X509KeyPair(f.PEM[c.Chain], f.PEM[c.Key]); err != nil {
			return fmt.Errorf("%s and %s: %w", c.Chain, c.Key, err)
		}
	}
	if c.CA != "" && !x509.NewCertPool().AppendCertsFromPEM(f.PEM[c.CA]) {
		return errors.New(c.CA + " holds no certificate")
	}
	return nil
}
