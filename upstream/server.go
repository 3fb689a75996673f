package upstream

import (
	"bytes"
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
	client *http.Client
	key    atomic.Pointer[string] // the header Authorization, nil for none
}

// idleLimit is how long a connection waits for its next request. Servers close
// theirs after 5 s, and a request on a connection that is just being closed fails.
const idleLimit = 4 * time.Second

// newServer connects to cfg.URL, or, where address is not "", to that address of its
// host.
func newServer(cfg *Config, address string) (*server, error) {
	base, socket, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: cfg.ConnectLimit, KeepAlive: 15 * time.Second}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: cfg.ConnectLimit, IdleConnTimeout: idleLimit,
		MaxIdleConns: cfg.IdleConnections, MaxIdleConnsPerHost: cfg.IdleConnections,
		DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if address != "" {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}
	}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("upstream.ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("upstream.ca_file: %s holds no certificate", cfg.CAFile)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	s := &server{cfg: cfg, base: base, client: &http.Client{
		Transport: transport,
		// A redirect would send a client's prompt, and our key, to a host that nobody
		// has configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return s, s.readKey()
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
	r, err := s.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := s.read(answer)
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

// read reads an answer that is not a stream.
func (s *server) read(answer *http.Response) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(answer.Body, int64(s.cfg.MessageBytesMax)+1))
	if err == nil && len(text) > s.cfg.MessageBytesMax {
		return text[:s.cfg.MessageBytesMax], errLong
	}
	return text, err
}

// reason says what went wrong with a connection, without our words around it.
func reason(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}
