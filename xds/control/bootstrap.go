package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/xds"
)

// Bootstrap is a client's bootstrap for a control plane.
type Bootstrap struct {
	Server    string // host:port
	ID        string // of the node
	Cluster   string // of the node
	CA        string // file with the authorities of the server's certificate; "" speaks plain text
	Cert, Key string // files with the client's certificate, or ""
	Admin     string // host:port of Envoy's admin page
}

// For is the text of a bootstrap for a kind of client.
func (b *Bootstrap) For(kind Kind) (string, error) {
	if kind == Envoy {
		return b.envoy()
	}
	creds := xds.BootstrapCreds{Type: "insecure"}
	if b.CA != "" {
		creds = xds.BootstrapCreds{Type: "tls", Config: &xds.TLSConfig{CA: b.CA, Cert: b.Cert, Key: b.Key}}
	}
	text, err := json.MarshalIndent(xds.Bootstrap{
		Servers: []xds.BootstrapServer{{URI: b.Server, Creds: []xds.BootstrapCreds{creds}, Features: []string{"xds_v3"}}},
		Node:    xds.BootstrapNode{ID: b.ID, Cluster: b.Cluster},
	}, "", "  ")
	return string(text) + "\n", err
}

// envoyBootstrap is what Envoy reads: one stream in the protocol of changes, whose
// connection is kept alive, so that a control plane that is gone is noticed.
const envoyBootstrap = `node:
  id: %q
  cluster: %q
admin:
  address: {socket_address: {address: %q, port_value: %d}}
dynamic_resources:
  ads_config:
    api_type: DELTA_GRPC
    transport_api_version: V3
    grpc_services: [{envoy_grpc: {cluster_name: forebay_control}}]
  cds_config: {ads: {}, resource_api_version: V3}
  lds_config: {ads: {}, resource_api_version: V3}
static_resources:
  clusters:
  - name: forebay_control
    type: %s
    connect_timeout: 2s
    load_assignment:
      cluster_name: forebay_control
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %q, port_value: %d}}}}]}]
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options:
            connection_keepalive: {interval: 30s, timeout: 5s}
`

func splitPort(address string) (host string, port uint64, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.ParseUint(text, 10, 16)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%q is not an address such as 127.0.0.1:18000", address)
	}
	return host, port, nil
}

func (b *Bootstrap) envoy() (string, error) {
	host, port, err := splitPort(b.Server)
	admin, adminPort, adminErr := splitPort(b.Admin)
	if err := errors.Join(err, adminErr); err != nil {
		return "", err
	}
	find := "STRICT_DNS"
	if net.ParseIP(host) != nil {
		find = "STATIC"
	}
	var out strings.Builder
	fmt.Fprintf(&out, envoyBootstrap, b.ID, b.Cluster, admin, adminPort, find, host, port)
	if b.CA == "" {
		return out.String(), nil
	}
	own := ""
	if b.Cert != "" {
		own = fmt.Sprintf("\n          tls_certificates: [{certificate_chain: {filename: %q}, private_key: {filename: %q}}]", b.Cert, b.Key)
	}
	fmt.Fprintf(&out, `    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: %q
        common_tls_context:
          validation_context:
            trusted_ca: {filename: %q}
            match_typed_subject_alt_names: [{san_type: %s, matcher: {exact: %q}}]%s
`, host, b.CA, map[string]string{"STATIC": "IP_ADDRESS", "STRICT_DNS": "DNS"}[find], host, own)
	return out.String(), nil
}
