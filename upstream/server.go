package upstream

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// server is the other end: its address and the connections to it.
type server struct {
	cfg    *Config
	base   *url.URL
	client *connections
	key    atomic.Pointer[string] // the header Authorization, nil for none
}

// newServer connects to cfg.URL, or, where address is not "", to that address of its
// host.
func newServer(cfg *Config, address string) (*server, error) {
	base, socket, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: base.Hostname()}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("upstream.ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("upstream.ca_file: %s holds no certificate", cfg.CAFile)
		}
		secure.RootCAs = pool
	}
	network, address := "tcp", cmp.Or(address, net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), defaultPort(base))))
	if socket != "" {
		network, address = "unix", socket
	}
	dialer := net.Dialer{Timeout: cfg.ConnectLimit, KeepAlive: 15 * time.Second}
	dial := func(ctx context.Context) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil || base.Scheme != "https" {
			return c, err
		}
		ctx, cancel := context.WithTimeout(ctx, cfg.ConnectLimit)
		defer cancel()
		over := tls.Client(c, secure)
		if err := over.HandshakeContext(ctx); err != nil {
			c.Close()
			return nil, err
		}
		return over, nil
	}
	s := &server{cfg: cfg, base: base, client: &connections{dial: dial, most: cfg.IdleConnections}}
	return s, s.readKey()
}

func defaultPort(u *url.URL) string {
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// keyBytesMax bounds the file of the key.
const keyBytesMax = 8 << 10

// readKey reads the file of the key again.
func (s *server) readKey() error {
	if s.cfg.KeyFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.cfg.KeyFile)
	if err != nil {
		return fmt.Errorf("upstream.key_file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || len(key) > keyBytesMax || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("upstream.key_file: %s must hold one key of visible ASCII characters", s.cfg.KeyFile)
	}
	key = "Bearer " + key
	s.key.Store(&key)
	return nil
}

// request builds a request for a path of the server.
func (s *server) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "forebay/"+s.cfg.Version)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	} else {
		r.Body, r.GetBody, r.ContentLength = nil, nil, 0
	}
	if key := s.key.Load(); key != nil {
		r.Header.Set("Authorization", *key)
	}
	return r, nil
}

// errStatus is an answer of another status than 200.
type errStatus struct {
	status int
	body   []byte // its beginning
	header http.Header
}

func (e *errStatus) Error() string { return fmt.Sprintf("status %d", e.status) }

// ask sends a request with a small answer, and reads that into to; nil drops it.
func (s *server) ask(ctx context.Context, method, path string, body []byte, to any) error {
	return s.askLong(ctx, method, path, body, to, s.cfg.MessageBytesMax)
}

// askLong is ask for an answer of at most so many bytes.
func (s *server) askLong(ctx context.Context, method, path string, body []byte, to any, bytesMax int) error {
	r, err := s.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	answer, _, err := s.client.do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := readAnswer(answer, bytesMax)
	switch {
	case answer.StatusCode != http.StatusOK:
		return &errStatus{answer.StatusCode, text, answer.Header}
	case err != nil:
		return err
	case to == nil:
		return nil
	}
	return json.Unmarshal(text, to)
}

var errLong = errors.New("the answer is longer than upstream.message_bytes_max")

// readAnswer reads an answer that is not a stream, of at most so many bytes.
func readAnswer(answer *http.Response, bytesMax int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(answer.Body, int64(bytesMax)+1))
	if err == nil && len(text) > bytesMax {
		return text[:bytesMax], errLong
	}
	return text, err
}
