package control

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// built are the resources of a policy of one file.
func built(t *testing.T, text string) *Sets {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Read(dir, 10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	sets, err := Build(files)
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

// TestEachHostHasItsRoutes: Envoy chooses the host first, so each has all routes that
// are for it, in the order of the files.
func TestEachHostHasItsRoutes(t *testing.T) {
	sets := built(t, mesh)
	routes := sets.of(Envoy).GetResources(routeType)["front"].(*routev3.RouteConfiguration)
	got := map[string]string{}
	for _, host := range routes.GetVirtualHosts() {
		for _, r := range host.GetRoutes() {
			got[host.GetName()] += r.GetName() + " "
		}
	}
	if len(got) != 3 || got["*.example"] != "chat rest " || got["api.other"] != "chat rest " || got["*"] != "rest " {
		t.Errorf("got %v", got)
	}
	for _, c := range []struct {
		pattern, domain string
		want            bool
	}{{"*", "a.example", true}, {"*.example", "a.example", true}, {"*.example", "*.b.example", true}, {"*.example", "*", false}, {"a", "b", false}, {"a", "*", false}} {
		if covers(c.pattern, c.domain) != c.want {
			t.Errorf("%s covers %s: want %v", c.pattern, c.domain, c.want)
		}
	}
}

// TestKindsAreGivenWhatTheyTake: a gRPC client takes neither Unix sockets nor
// listeners with an address alone, and Envoy no listener without one.
func TestKindsAreGivenWhatTheyTake(t *testing.T) {
	sets := built(t, mesh)
	if l := sets.of(Envoy).GetResources(listenerType); len(l) != 1 || l["front"] == nil {
		t.Errorf("Envoy has the listeners %v", l)
	}
	if l := sets.of(GRPC).GetResources(listenerType); len(l) != 2 {
		t.Errorf("gRPC has the listeners %v", l)
	}
	count := func(kind Kind, cluster string) int {
		return len(sets.of(kind).GetResources(endpointType)[cluster].(*endpointv3.ClusterLoadAssignment).GetEndpoints()[0].GetLbEndpoints())
	}
	if count(Envoy, "one") != 1 || count(GRPC, "one") != 0 || count(GRPC, "two") != 2 {
		t.Error("the endpoints are others")
	}
	if m := sets.of(Envoy).GetResources(clusterType)["one"].(*clusterv3.Cluster); m.GetHealthChecks()[0].GetHttpHealthCheck().GetPath() != "/readyz" {
		t.Errorf("the cluster is %v", m)
	}
}

func TestDiff(t *testing.T) {
	before, after := built(t, mesh+oneTenant).List(), built(t, strings.Replace(mesh, "{name: grpc}", "{name: other}", 1)+oneTenant+"# end\n").List()
	var b strings.Builder
	if Diff(&b, before, before) || b.Len() > 0 {
		t.Errorf("the same differs: %s", &b)
	}
	if !Diff(&b, before, after) {
		t.Error("others do not differ")
	}
	for _, want := range []string{"~ PolicyFile m.yaml\n", "    -   - {name: grpc}\n", "    + # end\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// TestPickerIsAskedWhereItIsFollowed: of the routes of a listener with a picker those are
// shown to it whose cluster sends requests where it says.
func TestPickerIsAskedWhereItIsFollowed(t *testing.T) {
	sets := built(t, `mesh:
  listeners: [{name: front, address: "127.0.0.1:10000", picker: p, limits: p, buffer_bytes_max: 1MiB}, {name: bare, address: "127.0.0.1:10001"}]
  routes: [{name: chat, prefix: /v1/, cluster: gateways}, {name: rest, cluster: other}]
  clusters:
  - {name: gateways, endpoints: ["10.0.0.1:8080"], balance: picker}
  - {name: other, endpoints: ["10.0.0.2:8080"]}
  - {name: p, endpoints: ["unix:/run/p.sock"], http2: true}
`)
	for name, want := range map[string]string{"front": "envoy.filters.http.ratelimit envoy.filters.http.ext_proc envoy.filters.http.router ", "bare": "envoy.filters.http.router "} {
		l := sets.of(Envoy).GetResources(listenerType)[name].(*listenerv3.Listener)
		m, err := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range m.(*hcmv3.HttpConnectionManager).GetHttpFilters() {
			got += f.GetName() + " "
		}
		if got != want || l.GetPerConnectionBufferLimitBytes().GetValue() != map[string]uint32{"front": 1 << 20}[name] {
			t.Errorf("%s: the filters are %s, the buffer %v", name, got, l.GetPerConnectionBufferLimitBytes())
		}
		for _, r := range sets.of(Envoy).GetResources(routeType)[name].(*routev3.RouteConfiguration).GetVirtualHosts()[0].GetRoutes() {
			if kept := r.GetTypedPerFilterConfig()[pickerFilter] != nil; kept != (name == "front" && r.GetName() == "rest") {
				t.Errorf("%s: the route %s is kept from the picker: %v", name, r.GetName(), kept)
			}
		}
	}
	clusters := sets.of(Envoy).GetResources(clusterType)
	if picked, other := clusters["gateways"].(*clusterv3.Cluster), clusters["other"].(*clusterv3.Cluster); picked.GetLoadBalancingPolicy() == nil || other.GetLoadBalancingPolicy() != nil {
		t.Errorf("%v, %v", picked, other)
	}
	if c := sets.of(GRPC).GetResources(clusterType)["gateways"].(*clusterv3.Cluster); c.GetLoadBalancingPolicy() != nil || c.GetLbPolicy() != clusterv3.Cluster_ROUND_ROBIN {
		t.Errorf("a gRPC client is given %v", c)
	}
}
