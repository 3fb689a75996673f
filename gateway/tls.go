package gateway

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificates are what the API proves itself with, and verifies clients by. They are
// replaced, all or none, when their files change; connections that are open go on.
type certificates struct {
	cfg TLSConfig
	log *slog.Logger

	mu     sync.Mutex
	looked time.Time
	read   [3]fileMark // what now, or the failed attempt after it, was read from
	now    *tls.Config
}

// fileMark tells one version of a file from another.
type fileMark struct {
	modified time.Time
	bytes    int64
}

// openTLS reads the files of cfg; nil where it speaks no TLS.
func openTLS(cfg TLSConfig, log *slog.Logger) (*tls.Config, error) {
	if cfg.Certificate == "" {
		return nil, nil
	}
	c := &certificates{cfg: cfg, log: log, looked: time.Now()}
	c.read = c.marks()
	var err error
	if c.now, err = cfg.load(); err != nil {
		return nil, fmt.Errorf("gateway.tls: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(time.Now()), nil }}, nil
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

// load reads the files.
func (c *TLSConfig) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}
	if c.ClientCA == "" {
		return t, nil
	}
	text, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, err
	}
	t.ClientCAs, t.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
	if !t.ClientCAs.AppendCertsFromPEM(text) {
		return nil, errors.New(c.ClientCA + " has no certificate in PEM")
	}
	return t, nil
}

// current is the configuration for a connection that opens at now.
func (c *certificates) current(now time.Time) *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.looked) < c.cfg.PollInterval {
		return c.now
	}
	c.looked = now
	marks := c.marks()
	if marks == c.read {
		return c.now
	}
	c.read = marks
	next, err := c.cfg.load()
	if err != nil { // a file that is being written is looked at again when it is whole
		c.log.Error("gateway.tls: the files have changed and were not taken, what held before goes on holding", "error", err)
		return c.now
	}
	c.log.Info("gateway.tls: the files have changed and were taken")
	c.now = next
	return c.now
}

func (c *certificates) marks() (marks [3]fileMark) {
	for i, name := range []string{c.cfg.Certificate, c.cfg.Key, c.cfg.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			marks[i] = fileMark{info.ModTime(), info.Size()}
		}
	}
	return marks
}
