package httpd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

// issuer signs certificates.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue signs one that holds until then, for a use. parent is nil for an authority.
func issue(t *testing.T, parent *issuer, until time.Time, use x509.ExtKeyUsage) (tls.Certificate, *issuer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	one := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{use}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	self := &issuer{one, key}
	if parent == nil {
		one.IsCA, one.BasicConstraintsValid, one.KeyUsage, one.ExtKeyUsage, parent = true, true, x509.KeyUsageCertSign, nil, self
	}
	der, err := x509.CreateCertificate(rand.Reader, one, parent.certificate, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	if self.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, self
}

// pool trusts an authority.
func pool(of *issuer) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(of.certificate)
	return p
}

// TestWhyTLSCouldNotBegin: each reason has a client that causes it, and its own error.
func TestWhyTLSCouldNotBegin(t *testing.T) {
	tomorrow := time.Now().Add(24 * time.Hour)
	_, authority := issue(t, nil, tomorrow, 0)
	_, strange := issue(t, nil, tomorrow, 0)
	shown, _ := issue(t, authority, tomorrow, x509.ExtKeyUsageServerAuth)
	unknown, _ := issue(t, strange, tomorrow, x509.ExtKeyUsageClientAuth)
	expired, _ := issue(t, authority, time.Now().Add(-time.Hour), x509.ExtKeyUsageClientAuth)
	misused, _ := issue(t, authority, tomorrow, x509.ExtKeyUsageServerAuth)
	cfg := limits
	cfg.ConnectionsMax, cfg.HeaderLimit = 100, time.Minute
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{shown}, ClientCAs: pool(authority), ClientAuth: tls.VerifyClientCertIfGiven}
	failed := make(chan string, 1)
	cfg.HandshakeFailed = func(_ net.Addr, why Handshake, err error) { failed <- why.String() + ": " + err.Error() }
	handler := page{func(r Request) { r.Answer(200, "text/plain", nil); failed <- "it began" }, nil}
	_, lenient := run(t, cfg, handler)
	cfg.TLS = cfg.TLS.Clone()
	cfg.TLS.ClientAuth = tls.RequireAndVerifyClientCert
	_, strict := run(t, cfg, handler)
	cfg.HeaderLimit = 20 * time.Millisecond
	_, hasty := run(t, cfg, handler)

	with := func(change func(*tls.Config)) func(net.Conn) {
		return func(c net.Conn) {
			client := &tls.Config{RootCAs: pool(authority), ServerName: "127.0.0.1"}
			change(client)
			over := tls.Client(c, client)
			io.WriteString(over, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			io.Copy(io.Discard, over)
		}
	}
	says := func(text string) func(net.Conn) {
		return func(c net.Conn) { io.WriteString(c, text); io.Copy(io.Discard, c) }
	}
	show := func(one tls.Certificate) func(net.Conn) {
		return with(func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &one, nil }
		})
	}
	for _, c := range []struct {
		address, want string
		client        func(net.Conn)
	}{
		{lenient, "plain_http", says("GET /v1/models HTTP/1.1\r\n\r\n")},
		{lenient, "not_tls", says("\x00\x01\x02\x03\x04\x05\x06\x07")},
		{lenient, "version", with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })},
		{lenient, "cipher", with(func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
		})},
		{lenient, "protocol", with(func(c *tls.Config) { c.NextProtos = []string{"h2"} })},
		{strict, "no_client_certificate", with(func(*tls.Config) {})},
		{lenient, "client_certificate_expired", show(expired)},
		{lenient, "client_certificate_unknown", show(unknown)},
		{lenient, "client_certificate_invalid", show(misused)},
		{lenient, "server_certificate_refused", with(func(c *tls.Config) { c.RootCAs = pool(strange) })},
		{hasty, "timed_out", func(c net.Conn) { io.Copy(io.Discard, c) }},
	} {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		go func() { c.client(conn); conn.Close() }()
		if got := <-failed; !strings.HasPrefix(got, c.want+": ") {
			t.Errorf("want %s, got %s", c.want, got)
		}
	}
	if names := len(handshakeNames); handshakeNames[names-1] == "" {
		t.Error("a reason has no name")
	}
}
