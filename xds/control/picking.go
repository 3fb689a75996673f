package control

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	overridev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	roundv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forebay-io/forebay/xds/policy"
)

// This file leads Envoy to an endpoint picker, and makes it follow what that says.

const pickerFilter = "envoy.filters.http.ext_proc"

// picker asks a gateway's endpoint picker about each request. One that does not answer
// changes nothing: Envoy balances by itself.
func (b *builder) picker(l *policy.Listener) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: pickerFilter, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: b.pack(&extprocv3.ExternalProcessor{
		GrpcService:      &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: l.Picker}}},
		FailureModeAllow: true, MessageTimeout: durationpb.New(l.PickerLimit),
		ProcessingMode: &extprocv3.ProcessingMode{RequestBodyMode: extprocv3.ProcessingMode_BUFFERED, ResponseHeaderMode: extprocv3.ProcessingMode_SKIP},
		MetadataOptions: &extprocv3.MetadataOptions{
			ForwardingNamespaces: &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{"envoy.lb.subset_hint"}},
			ReceivingNamespaces:  &extprocv3.MetadataOptions_MetadataNamespaces{Untyped: []string{"envoy.lb"}},
		},
	})}}
}

// unpicked keeps requests of a route from the picker, since its cluster does not follow
// it.
func (b *builder) unpicked() map[string]*anypb.Any {
	return map[string]*anypb.Any{pickerFilter: b.pack(&extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true}})}
}

// picked sends requests to the endpoint that the picker named, and to the next that it
// named when that one cannot be reached. It is not read from the header, which a client
// could send.
func (b *builder) picked() *clusterv3.LoadBalancingPolicy {
	one := func(name string, config *anypb.Any) *clusterv3.LoadBalancingPolicy {
		return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: name, TypedConfig: config}}}}
	}
	return one("envoy.load_balancing_policies.override_host", b.pack(&overridev3.OverrideHost{
		OverrideHostSources: []*overridev3.OverrideHost_OverrideHostSource{{Metadata: &metadatav3.MetadataKey{
			Key: "envoy.lb", Path: []*metadatav3.MetadataKey_PathSegment{{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: "x-gateway-destination-endpoint"}}},
		}}},
		FallbackPolicy: one("envoy.load_balancing_policies.round_robin", b.pack(&roundv3.RoundRobin{})),
	}))
}

// follows reports whether a cluster sends requests where the picker says.
func (b *builder) follows(cluster string) bool {
	for _, c := range b.mesh.Clusters {
		if c.Name == cluster {
			return c.Balance == policy.BalancePicker
		}
	}
	return false
}
