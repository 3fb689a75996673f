package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Mesh is what proxies and gRPC clients are told: where to listen, where requests
// go, and which endpoints serve them.
type Mesh struct {
	Listeners    []Listener    `yaml:"listeners" help:"Where requests come in."`
	Routes       []Route       `yaml:"routes" help:"Which requests go to which cluster; of the routes of a listener the first that fits counts."`
	Clusters     []Cluster     `yaml:"clusters" help:"Groups of endpoints that serve the same."`
	Certificates []Certificate `yaml:"certificates" help:"Certificates of listeners and clusters."`
}

// Listener is an address of Envoy, or a name that gRPC clients resolve.
type Listener struct {
	Name        string `yaml:"name" help:"Name; a gRPC client resolves it as xds:///NAME."`
	Address     string `yaml:"address" help:"Where Envoy listens, as IP:PORT or unix:PATH; empty is for gRPC clients alone."`
	Certificate string `yaml:"certificate" help:"Its certificate, of certificates; empty speaks plain text."`
	Limits      string `yaml:"limits" help:"Cluster of a gateway's rate limit service (envoy.listen), which Envoy asks about each request by its header Authorization; empty asks none."`

	Picker      string        `yaml:"picker" help:"Cluster of a gateway's endpoint picker (envoy.picker.on), which Envoy asks where each request goes whose cluster has the balance picker; empty asks none."`
	PickerLimit time.Duration `yaml:"picker_limit" default:"200ms" range:"1ms..1m" help:"How long Envoy waits for the picker; then it goes round the endpoints."`
	BufferMax   int           `yaml:"buffer_bytes_max" default:"8388608" range:"4KiB..1GiB" help:"Longest body that Envoy keeps until the picker has answered; longer ones get 413."`
}

// Route sends requests of a listener to a cluster.
type Route struct {
	Name     string        `yaml:"name" help:"Name."`
	Listener string        `yaml:"listener" help:"Listener whose requests it takes; empty is all listeners."`
	Domains  []string      `yaml:"domains" help:"Hosts that it is for, such as api.example or *.example; none listed is all."`
	Prefix   string        `yaml:"prefix" default:"/" help:"What the path begins with."`
	Cluster  string        `yaml:"cluster" help:"Cluster that serves it."`
	Limit    time.Duration `yaml:"limit" help:"Longest time of a whole answer; 0 sets none, as streams need it."`
}

// Cluster is a group of endpoints.
type Cluster struct {
	Name         string        `yaml:"name" help:"Name."`
	Endpoints    []string      `yaml:"endpoints" help:"Where it is served: IP:PORT, or unix:PATH on the proxy's own machine."`
	Balance      string        `yaml:"balance" default:"least_request" oneof:"least_request round_robin random picker" help:"How an endpoint is chosen; picker is the one that the listener's picker names, or the next in turn where it names none. gRPC clients take round_robin in its place."`
	ConnectLimit time.Duration `yaml:"connect_limit" default:"1s" range:"10ms..1m" help:"Longest time to connect."`
	RequestsMax  int           `yaml:"requests_max" default:"4096" range:"1..1000000" help:"Most requests at once from one proxy, and most connections; further ones get 503."`
	HTTP2        bool          `yaml:"http2" help:"Whether endpoints speak HTTP/2, as gRPC does."`
	Health       string        `yaml:"health" help:"Path that must answer 200, such as /readyz; empty checks nothing."`
	Certificate  string        `yaml:"certificate" help:"Certificate that is shown to endpoints, and whose authority theirs must have; empty speaks plain text."`
}

// Certificate is a chain with its key, and the authority that peers must have. The
// files are those of the control plane, which sends what they hold.
type Certificate struct {
	Name  string `yaml:"name" help:"Name."`
	Chain string `yaml:"chain" help:"File of the control plane with the certificate and its chain (PEM)."`
	Key   string `yaml:"key" help:"File of the control plane with the private key (PEM)."`
	CA    string `yaml:"ca" help:"File of the control plane with the authorities (PEM) that a peer's certificate must have; empty asks for none."`
}

// BalancePicker is the balance of clusters whose endpoints a picker names.
const BalancePicker = "picker"

// Mistakes checks that names lead somewhere.
func (m *Mesh) Mistakes() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	m.checkListeners(fail)
	m.checkRoutes(fail)
	m.checkClusters(fail)
	m.checkCertificates(fail)
	return errors.Join(errs...)
}

func (m *Mesh) checkListeners(fail func(format string, args ...any)) {
	for i, l := range m.Listeners {
		if err := checkAddress(l.Address); l.Address != "" && err != nil {
			fail("listeners[%d].address: %w", i, err)
		}
		if l.Certificate != "" && m.certificate(l.Certificate) == nil {
			fail("listeners[%d].certificate: there is no certificate %q in mesh.certificates", i, l.Certificate)
		}
		for _, one := range []struct{ setting, cluster string }{{"limits", l.Limits}, {"picker", l.Picker}} {
			at := slices.IndexFunc(m.Clusters, func(c Cluster) bool { return c.Name == one.cluster })
			switch {
			case one.cluster == "":
			case at < 0:
				fail("listeners[%d].%s: there is no cluster %q in mesh.clusters", i, one.setting, one.cluster)
			case !m.Clusters[at].HTTP2:
				fail("listeners[%d].%s: the cluster %s needs http2, since the service speaks gRPC", i, one.setting, one.cluster)
			}
		}
		if l.Picker != "" && !slices.ContainsFunc(m.Clusters, func(c Cluster) bool { return c.Balance == BalancePicker }) {
			fail("listeners[%d].picker: no cluster has the balance %s, so that nothing would follow it", i, BalancePicker)
		}
	}
}

func (m *Mesh) checkRoutes(fail func(format string, args ...any)) {
	for i, r := range m.Routes {
		if r.Listener != "" && !slices.ContainsFunc(m.Listeners, func(l Listener) bool { return l.Name == r.Listener }) {
			fail("routes[%d].listener: there is no listener %q in mesh.listeners", i, r.Listener)
		}
		if !slices.ContainsFunc(m.Clusters, func(c Cluster) bool { return c.Name == r.Cluster }) {
			fail("routes[%d].cluster: there is no cluster %q in mesh.clusters", i, r.Cluster)
		}
		if !strings.HasPrefix(r.Prefix, "/") {
			fail("routes[%d].prefix: %q does not begin with /", i, r.Prefix)
		}
	}
}

func (m *Mesh) checkClusters(fail func(format string, args ...any)) {
	for i, c := range m.Clusters {
		if len(c.Endpoints) == 0 {
			fail("clusters[%d].endpoints: list one at least", i)
		}
		for _, e := range c.Endpoints {
			if err := checkAddress(e); err != nil {
				fail("clusters[%d].endpoints: %w", i, err)
			}
		}
		if c.Certificate != "" && m.certificate(c.Certificate) == nil {
			fail("clusters[%d].certificate: there is no certificate %q in mesh.certificates", i, c.Certificate)
		}
		if known := m.certificate(c.Certificate); known != nil && known.CA == "" {
			fail("clusters[%d].certificate: %s has no ca, so that anybody could be an endpoint", i, c.Certificate)
		}
		if c.Balance == BalancePicker && !slices.ContainsFunc(m.Listeners, func(l Listener) bool { return l.Picker != "" }) {
			fail("clusters[%d].balance: no listener has a %s", i, BalancePicker)
		}
		if c.Health != "" && !strings.HasPrefix(c.Health, "/") {
			fail("clusters[%d].health: %q is not a path such as /readyz", i, c.Health)
		}
	}
}

func (m *Mesh) checkCertificates(fail func(format string, args ...any)) {
	for i, c := range m.Certificates {
		if (c.Chain == "") != (c.Key == "") {
			fail("certificates[%d].chain: a chain needs a key, and a key a chain", i)
		}
		if c.Chain == "" && c.CA == "" {
			fail("certificates[%d].chain: give chain and key, or ca", i)
		}
	}
	for _, l := range m.Listeners {
		if c := m.certificate(l.Certificate); c != nil && c.Chain == "" {
			fail("certificates: %s has no chain, and the listener %s needs one", c.Name, l.Name)
		}
	}
}

func (m *Mesh) certificate(name string) *Certificate {
	if i := slices.IndexFunc(m.Certificates, func(c Certificate) bool { return c.Name == name }); i >= 0 {
		return &m.Certificates[i]
	}
	return nil
}

// UnixPrefix begins the address of a Unix socket.
const UnixPrefix = "unix:"

// checkAddress refuses what proxies cannot take without a name server.
func checkAddress(text string) error {
	if path, ok := strings.CutPrefix(text, UnixPrefix); ok {
		if strings.HasPrefix(path, "/") && len(path) <= 107 {
			return nil
		}
		return fmt.Errorf("%q is not unix: and an absolute path of at most 107 bytes", text)
	}
	if _, err := netip.ParseAddrPort(text); err != nil {
		return fmt.Errorf("%q is not an address such as 10.0.0.1:8080 or unix:/run/forebay/api.sock", text)
	}
	return nil
}

// SplitAddress takes an address apart that is no Unix socket's.
func SplitAddress(text string) (host string, port uint32) {
	ap, _ := netip.ParseAddrPort(text) // Mistakes has checked it
	return ap.Addr().String(), uint32(ap.Port())
}
