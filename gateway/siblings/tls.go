package siblings

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/certs"
)

// files are the certificates of hops.
type files struct {
	cfg   *Config
	certs *certs.Reader
}

// checkEvery is how often files are looked at, at most.
const checkEvery = time.Second

func openFiles(cfg *Config, log *slog.Logger) (*files, error) {
	r, err := certs.Open(certs.Files{Certificate: cfg.TLSCert, Key: cfg.TLSKey, Authorities: cfg.TLSCA}, checkEvery, log.With("setting", "siblings.tls_cert"))
	if err != nil {
		return nil, fmt.Errorf("siblings.tls_cert, siblings.tls_key, siblings.tls_ca: %w", err)
	}
	return &files{cfg, r}, nil
}

// server is the configuration of one connection that comes in.
func (f *files) server(*tls.ClientHelloInfo) (*tls.Config, error) {
	set := f.certs.Current(time.Now())
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{set.Certificate}, ClientCAs: set.Authorities, ClientAuth: tls.RequireAndVerifyClientCert,
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
	set := f.certs.Current(time.Now())
	d := tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{set.Certificate}, RootCAs: set.Authorities, ServerName: cmp.Or(f.cfg.TLSServerName, host),
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
