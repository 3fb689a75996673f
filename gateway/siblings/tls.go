package siblings

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// files are the certificates of hops, read again when a file has changed. What cannot
// be read then changes nothing.
type files struct {
	cfg *Config
	log *slog.Logger

	mu      sync.Mutex // guards all below
	pair    tls.Certificate
	pool    *x509.CertPool
	stamps  [3]stamp
	checked time.Time
}

type stamp struct {
	size    int64
	changed time.Time
}

// checkEvery is how often files are looked at, at most.
const checkEvery = time.Second

func openFiles(cfg *Config, log *slog.Logger) (*files, error) {
	f := &files{cfg: cfg, log: log, checked: time.Now()}
	stamps, err := f.look()
	if err == nil {
		err = f.read(stamps)
	}
	return f, err
}

// look stats the files.
func (f *files) look() (stamps [3]stamp, err error) {
	for i, path := range [...]string{f.cfg.TLSCert, f.cfg.TLSKey, f.cfg.TLSCA} {
		info, err := os.Stat(path)
		if err != nil {
			return stamps, fmt.Errorf("siblings.tls_%s: %w", [...]string{"cert", "key", "ca"}[i], err)
		}
		stamps[i] = stamp{info.Size(), info.ModTime()}
	}
	return stamps, nil
}

func (f *files) read(stamps [3]stamp) error {
	pair, err := tls.LoadX509KeyPair(f.cfg.TLSCert, f.cfg.TLSKey)
	if err != nil {
		return fmt.Errorf("siblings.tls_cert and siblings.tls_key: %w", err)
	}
	text, err := os.ReadFile(f.cfg.TLSCA)
	if err != nil {
		return fmt.Errorf("siblings.tls_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("siblings.tls_ca: %s has no certificate in PEM", f.cfg.TLSCA)
	}
	f.pair, f.pool, f.stamps = pair, pool, stamps
	return nil
}

// current is the certificate and the authorities of now.
func (f *files) current(now time.Time) (tls.Certificate, *x509.CertPool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.checked) < checkEvery {
		return f.pair, f.pool
	}
	f.checked = now
	stamps, err := f.look()
	if err == nil && stamps == f.stamps {
		return f.pair, f.pool
	}
	if err == nil {
		err = f.read(stamps)
	}
	if err != nil {
		f.log.Error("siblings: certificates have changed and cannot be read; those from before are used", "error", err)
	} else {
		f.log.Info("siblings: certificates were read again")
	}
	return f.pair, f.pool
}

// server is the configuration of one connection that comes in.
func (f *files) server(*tls.ClientHelloInfo) (*tls.Config, error) {
	pair, pool := f.current(time.Now())
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			if f.cfg.TLSServerName == "" {
				return nil
			}
			return s.PeerCertificates[0].VerifyHostname(f.cfg.TLSServerName)
		},
	}, nil
}

// dial connects to a sibling.
func (f *files) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectLimit)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	pair, pool := f.current(time.Now())
	d := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: cmp.Or(f.cfg.TLSServerName, host),
	}}
	return d.DialContext(ctx, network, address)
}

// listener encrypts what it accepts.
type listener struct {
	net.Listener
	config *tls.Config
}

func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := tls.Server(raw, l.config)
	if sys, ok := raw.(syscall.Conn); ok {
		return &encrypted{c, sys}, nil
	}
	return c, nil
}

// encrypted has the socket too, by which the server sees that the peer has gone.
type encrypted struct {
	*tls.Conn
	socket syscall.Conn
}

func (c *encrypted) SyscallConn() (syscall.RawConn, error) { return c.socket.SyscallConn() }

// Guard is ln, with TLS where it is set up.
func (g *Group) Guard(ln net.Listener) net.Listener {
	if g.files == nil {
		return ln
	}
	return &listener{ln, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: g.files.server}}
}

// checkTLS finds what is wrong in the settings of TLS.
func (c *Config) checkTLS() error {
	all := c.TLSCert != "" && c.TLSKey != "" && c.TLSCA != ""
	some := c.TLSCert+c.TLSKey+c.TLSCA+c.TLSServerName != ""
	if some && !all {
		return errors.New("siblings.tls_cert, siblings.tls_key and siblings.tls_ca belong together: set all, or none")
	}
	return nil
}
