package siblings

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/storetest"
	"github.com/forebay-io/forebay/internal/wire"
)

func TestNamesOfPeers(t *testing.T) {
	var found []netip.Addr
	var failure error
	f := &finder{peers: []string{"h:1", "dns:x:2", "10.0.0.1:2"}, log: slog.New(slog.DiscardHandler), last: map[string][]string{},
		lookup: func(context.Context, string, string) ([]netip.Addr, error) { return found, failure }}
	expect := func(want string) {
		t.Helper()
		if got := fmt.Sprint(f.addresses(t.Context())); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	found = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("::ffff:10.0.0.2")}
	expect("[10.0.0.1:2 10.0.0.2:2 [fd00::1]:2 h:1]")
	failure = errors.New("no such host")
	expect("[10.0.0.1:2 10.0.0.2:2 [fd00::1]:2 h:1]")
	found, failure = found[:1], nil
	expect("[10.0.0.1:2 h:1]")
}

func TestConfigOfPeers(t *testing.T) {
	good := Config{Peers: []string{"dns:forebay:8082", "10.0.0.7:8082"}, Name: "a", Listen: ":8082", SecretFile: "f"}
	if err := good.Mistakes(); err != nil {
		t.Error(err)
	}
	for text, change := range map[string]func(c *Config){
		"is not HOST:PORT":          func(c *Config) { c.Peers = []string{"10.0.0.7"} },
		"two ways":                  func(c *Config) { c.Store = "redis://h" },
		"siblings.secret_file is":   func(c *Config) { c.SecretFile = "" },
		"siblings.listen needs":     func(c *Config) { c.Listen = ":0" },
		"siblings.advertise has no": func(c *Config) { c.Advertise = "h:1" },
		"belong together":           func(c *Config) { c.TLSCert = "c" },
	} {
		c := good
		if change(&c); c.Mistakes() == nil || !strings.Contains(c.Mistakes().Error(), text) {
			t.Errorf("%v, want %q", c.Mistakes(), text)
		}
	}
}

// authority is a certificate authority of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key, a.pem = a.make(template, nil)
	return a
}

func (a *authority) make(template *x509.Certificate, parent *authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	by, signer := template, key
	if parent != nil {
		by, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// write writes cert.pem, key.pem and ca.pem of a replica with a name.
func (a *authority) write(dir, name string) {
	a.t.Helper()
	_, key, cert := a.make(&x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}, a)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, text := range map[string][]byte{"cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), "ca.pem": a.pem} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// openPeer opens a replica that speaks TLS by the files in dir, and answers questions.
func openPeer(t *testing.T, name, secret, dir string, listen net.Listener, peers ...string) *Group {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := Open(Config{
		Peers: peers, PeersEvery: time.Second, Name: name, SecretFile: file, TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem"), TLSCA: filepath.Join(dir, "ca.pem"),
		TLSServerName: "fleet", Interval: 10 * ms, Lease: 2 * time.Second, GrainTokens: 16, BlocksMax: 1024, ChangesMax: 1024, LogMax: 100, ReportsMax: 32,
		HopCost: ms, GainMin: ms, FreshLimit: time.Second, ConnectLimit: time.Second, SilenceLimit: time.Second, AvoidFor: time.Minute, HopsMax: 4,
	}, listen.Addr(), idle{1000}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer, signature, err := g.News(r.Header.Get(SignatureHeader), r.Header.Get(FormatHeader), body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		w.Header().Set(SignatureHeader, signature)
		w.Write(answer)
	}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go server.Serve(g.Guard(listen))
	t.Cleanup(func() { server.Close() })
	g.Heard(&wire.State{Model: wire.Model{ID: "m", Fingerprint: "f", PageTokens: 16}})
	return g
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// Replicas of one authority, one name and one secret know each other, also after their
// certificates and authority were replaced while they run. All others are refused.
func TestPeersTrustTheirOwn(t *testing.T) {
	const secret = "a secret of the fleet"
	fleet, other := newAuthority(t), newAuthority(t)
	one, two, foreign, unnamed := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	fleet.write(one, "fleet")
	fleet.write(two, "fleet")
	other.write(foreign, "fleet")
	fleet.write(unnamed, "somebody")
	la, lb := listen(t), listen(t)
	a := openPeer(t, "a", secret, one, la, lb.Addr().String())
	b := openPeer(t, "b", secret, two, lb, la.Addr().String())
	knows := func(g *Group, n int) func() bool { return func() bool { return len(g.View().Siblings) == n } }
	storetest.Eventually(t, "a knows b", knows(a, 1))
	storetest.Eventually(t, "b knows a", knows(b, 1))
	if s := a.View().Siblings[0]; s.Address != lb.Addr().String() {
		t.Errorf("a would send to %s", s.Address)
	}
	for name, stranger := range map[string]*Group{
		"of another authority": openPeer(t, "c", secret, foreign, listen(t), la.Addr().String()),
		"of another name":      openPeer(t, "d", secret, unnamed, listen(t), la.Addr().String()),
		"of another secret":    openPeer(t, "e", "not "+secret, one, listen(t), la.Addr().String()),
	} {
		_, err := stranger.ask(t.Context(), la.Addr().String(), []byte(`{"space":"x"}`))
		t.Log(err)
		if err == nil {
			t.Errorf("a replica %s was answered", name)
		}
	}
	if _, err := b.ask(t.Context(), la.Addr().String(), []byte(`{"space":"x"}`)); err != nil {
		t.Error(err)
	}
	other.write(one, "fleet")
	other.write(two, "fleet")
	a.files.touch(time.Hour)
	b.files.touch(time.Hour)
	a.news.CloseIdleConnections()
	b.news.CloseIdleConnections()
	storetest.Eventually(t, "a stranger of before is at home now", func() bool {
		c := openPeer(t, "f", secret, foreign, listen(t), la.Addr().String())
		_, err := c.ask(t.Context(), la.Addr().String(), []byte(`{"space":"x"}`))
		return err == nil
	})
	if err := os.WriteFile(filepath.Join(one, "key.pem"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.files.touch(2 * time.Hour)
	b.news.CloseIdleConnections()
	if _, err := b.ask(t.Context(), la.Addr().String(), []byte(`{"space":"x"}`)); err != nil {
		t.Errorf("a key that cannot be read took the one before: %v", err)
	}
}

// touch looks at the files, as a connection would that opens so much later.
func (f *files) touch(later time.Duration) { f.certs.Current(time.Now().Add(later)) }

// Who has no secret cannot answer, not even with an answer that was given before.
func TestForgedNews(t *testing.T) {
	secret := "a secret of the fleet"
	ca, dir := newAuthority(t), t.TempDir()
	ca.write(dir, "fleet")
	la, lb := listen(t), listen(t)
	a := openPeer(t, "a", secret, dir, la, la.Addr().String())
	b := openPeer(t, "b", secret, dir, lb, lb.Addr().String())
	question := []byte(`{"space":"x"}`)
	answer, signature, err := b.News(sign([]byte(secret), NewsPath, anyone, question, time.Now().Add(-time.Second)), Format, question)
	if err != nil {
		t.Fatal(err)
	}
	liar := listen(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(SignatureHeader, signature) // of another question
		w.Write(answer)
	})}
	go server.Serve(b.Guard(liar))
	t.Cleanup(func() { server.Close() })
	if _, err := a.ask(t.Context(), liar.Addr().String(), question); !errors.Is(err, errUnsigned) {
		t.Errorf("an answer to another question was taken: %v", err)
	}
}
