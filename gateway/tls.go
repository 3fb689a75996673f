package gateway

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/forebay-io/forebay/internal/certs"
)

// openTLS reads the files of cfg, which are read again when they change; nil where the
// API speaks no TLS.
func openTLS(cfg TLSConfig, log *slog.Logger) (*tls.Config, error) {
	if cfg.Certificate == "" {
		return nil, nil
	}
	files, err := certs.Open(certs.Files{Certificate: cfg.Certificate, Key: cfg.Key, Authorities: cfg.ClientCA}, cfg.PollInterval, log.With("setting", "gateway.tls"))
	if err != nil {
		return nil, fmt.Errorf("gateway.tls: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		set := files.Current(time.Now())
		t := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{set.Certificate}}
		if set.Authorities != nil {
			t.ClientCAs, t.ClientAuth = set.Authorities, tls.VerifyClientCertIfGiven
		}
		return t, nil
	}}, nil
}

// Scheme is the beginning of the API's URL.
func (c *TLSConfig) Scheme() string {
	if c.Certificate == "" {
		return "http://"
	}
	return "https://"
}

// Own is for a client on the same machine: it trusts the server that shows the very
// certificate that is configured, by whatever name it was reached.
func (c *TLSConfig) Own() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		text, err := os.ReadFile(c.Certificate)
		if err != nil {
			return err
		}
		block, _ := pem.Decode(text)
		if block == nil || !bytes.Equal(block.Bytes, s.PeerCertificates[0].Raw) {
			return errors.New("the server shows another certificate than the one in " + c.Certificate)
		}
		return nil
	}}
}
