package xds

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Bootstrap is gRPC's bootstrap file of xDS, as far as it is read here. Unknown
// fields are ignored, as gRPC does, since one file may serve several programs.
type Bootstrap struct {
	Servers []BootstrapServer `json:"xds_servers"`
	Node    BootstrapNode     `json:"node"`
}

// BootstrapServer is a control plane.
type BootstrapServer struct {
	URI      string           `json:"server_uri"`
	Creds    []BootstrapCreds `json:"channel_creds"`
	Features []string         `json:"server_features,omitempty"`
}

// BootstrapCreds is one way to speak to a control plane: insecure, tls or
// google_default, of which the last is not known here.
type BootstrapCreds struct {
	Type   string     `json:"type"`
	Config *TLSConfig `json:"config,omitempty"`
}

// TLSConfig is the configuration of the type tls.
type TLSConfig struct {
	CA   string `json:"ca_certificate_file,omitempty"`
	Cert string `json:"certificate_file,omitempty"`
	Key  string `json:"private_key_file,omitempty"`
}

// BootstrapNode is what a client says about itself.
type BootstrapNode struct {
	ID       string         `json:"id"`
	Cluster  string         `json:"cluster,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// bootstrapBytesMax bounds a bootstrap file.
const bootstrapBytesMax = 1 << 20

// ReadBootstrap reads and checks a bootstrap file.
func ReadBootstrap(file string) (*Bootstrap, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > bootstrapBytesMax {
		return nil, fmt.Errorf("%s has %d bytes; a bootstrap has %d at most", file, info.Size(), bootstrapBytesMax)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	b, err := ParseBootstrap(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, nil
}

// ParseBootstrap reads the text of a bootstrap file. The error names the field.
func ParseBootstrap(text []byte) (*Bootstrap, error) {
	var b Bootstrap
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("is not a bootstrap of xDS: %w", err)
	}
	if len(b.Servers) == 0 {
		return nil, errors.New("xds_servers: names no server")
	}
	for i := range b.Servers {
		s := &b.Servers[i]
		if s.URI == "" {
			return nil, fmt.Errorf("xds_servers[%d].server_uri: is missing", i)
		}
		if _, err := s.creds(); err != nil {
			return nil, fmt.Errorf("xds_servers[%d].channel_creds: %w", i, err)
		}
	}
	if b.Node.ID == "" {
		return nil, errors.New("node.id: is missing: the control plane knows a client by it")
	}
	return &b, nil
}

// creds is the first of the server's credentials that is known here.
func (s *BootstrapServer) creds() (*BootstrapCreds, error) {
	var types []string
	for i := range s.Creds {
		if t := s.Creds[i].Type; t == "insecure" || t == "tls" {
			return &s.Creds[i], nil
		}
		types = append(types, fmt.Sprintf("%q", s.Creds[i].Type))
	}
	if len(types) == 0 {
		return nil, errors.New("is missing: give the type insecure or tls")
	}
	return nil, fmt.Errorf("has the types %s, and insecure and tls are known", strings.Join(types, ", "))
}

// Dial prepares a connection to the server; it connects when it is used. Files of
// certificates are read now.
func (s *BootstrapServer) Dial(options ...grpc.DialOption) (*grpc.ClientConn, error) {
	c, err := s.creds()
	if err != nil {
		return nil, err
	}
	transport := insecure.NewCredentials()
	if c.Type == "tls" {
		config, err := c.Config.config()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	return grpc.NewClient(s.URI, append(options, grpc.WithTransportCredentials(transport))...)
}

func (c *TLSConfig) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c == nil {
		return config, nil
	}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", c.CA)
		}
	}
	if c.Cert != "" || c.Key != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
