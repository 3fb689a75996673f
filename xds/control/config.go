package control

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Config configures a control plane.
type Config struct {
	Listen       string        `yaml:"listen" default:"127.0.0.1:18000" help:"Address for xDS, as host:port."`
	Admin        string        `yaml:"admin" default:"127.0.0.1:18001" help:"Address of metrics (/metrics) and health (/readyz), as host:port; off for none."`
	Dir          string        `yaml:"dir" help:"Folder of policy files (*.yaml), with its subfolders. It may be a symbolic link that is replaced as a whole, and a ConfigMap of Kubernetes."`
	PollInterval time.Duration `yaml:"poll_interval" default:"250ms" range:"10ms..1h" help:"How often the folder is looked at. A change is taken when two looks see the same."`
	FilesMax     int           `yaml:"files_max" default:"10000" range:"1..1000000" help:"Most policy files."`
	BytesMax     int           `yaml:"total_bytes_max" default:"3145728" range:"1KiB..1GiB" help:"Most bytes of all policy files together. gRPC clients take 4 MiB in one message unless told otherwise."`
	NodesMax     int           `yaml:"nodes_max" default:"10000" range:"1..1000000" help:"Most connected clients; further ones are refused."`

	API            string `yaml:"api" help:"Address of the API that lists, reads, writes and deletes the files of dir, as host:port; empty is none. Off the loopback it needs tls_cert."`
	APITokenFile   string `yaml:"api_token_file" help:"File with the token that requests to the API must show; it is read again for each."`
	APIRequestsMax int    `yaml:"api_requests_max" default:"16" range:"1..1024" help:"Requests to the API at a time; further ones get 503."`

	TLSCert     string `yaml:"tls_cert" help:"File with the server's certificate (PEM); empty speaks plain text. It is read again for each connection."`
	TLSKey      string `yaml:"tls_key" help:"File with the private key (PEM) of tls_cert."`
	TLSClientCA string `yaml:"tls_client_ca" help:"File with the authorities (PEM) that a client's certificate must have; empty asks for none."`

	CanaryPercent     int           `yaml:"canary_percent" range:"1..99" help:"Share of the nodes that get a new version first, in percent; 0 gives it to all at once, unless canary_label is set."`
	CanaryLabel       string        `yaml:"canary_label" help:"Nodes that get a new version first, as KEY=VALUE of their metadata."`
	CanaryFailedMax   float64       `yaml:"canary_failed_max" default:"0.05" range:"0.001..1" help:"Share of requests that may fail at the gateways with a version on trial, over that at all others; above it the version is taken back. 1 looks at none."`
	CanaryRequestsMin int           `yaml:"canary_requests_min" default:"50" range:"1..1000000000" help:"Requests at the gateways with a version on trial from which on their failures count."`
	CanaryHold        time.Duration `yaml:"canary_hold" default:"1m" range:"10ms..24h" help:"How long these nodes must have had a new version, without refusing it, before all get it."`
}

// Mistakes checks what no tag can say.
func (c *Config) Mistakes() error {
	var errs []error
	if (c.TLSCert == "") != (c.TLSKey == "") {
		errs = append(errs, errors.New("tls_cert: a certificate needs tls_key, and a key a certificate"))
	}
	if c.TLSClientCA != "" && c.TLSCert == "" {
		errs = append(errs, errors.New("tls_client_ca: needs tls_cert, since clients show certificates over TLS alone"))
	}
	if host, _, err := net.SplitHostPort(c.API); c.API != "" {
		ip, parseErr := netip.ParseAddr(host)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("api: %q is not an address such as 127.0.0.1:18002", c.API))
		case c.APITokenFile == "":
			errs = append(errs, errors.New("api: needs api_token_file, so that not everybody can change policies"))
		case c.TLSCert == "" && host != "localhost" && (parseErr != nil || !ip.IsLoopback()):
			errs = append(errs, fmt.Errorf("api: %s needs tls_cert and tls_key, since the token would travel in plain text", c.API))
		}
	}
	if _, _, err := parseLabel(c.CanaryLabel); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
