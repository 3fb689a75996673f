package control

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/xds"
)

// authority signs certificates for 127.0.0.1 into files of a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", nil)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes NAME.pem and NAME.key.
func (a *authority) issue(name string, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: parent == nil, BasicConstraintsValid: true,
	}
	signer, by := key, cert
	if parent != nil {
		signer, by = a.key, parent
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, by, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	os.WriteFile(a.file(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
	return cert, key
}

// follow runs a gateway's client with a bootstrap until the test ends.
func follow(t *testing.T, boot *xds.Bootstrap, health ...func() xds.Health) (*xds.Client, *follower) {
	t.Helper()
	return followWith(t, xds.Config{HealthEach: 100 * time.Millisecond}, boot, health...)
}

func followWith(t *testing.T, cfg xds.Config, boot *xds.Bootstrap, health ...func() xds.Health) (*xds.Client, *follower) {
	t.Helper()
	f := &follower{}
	c, err := xds.New(cfg, boot, "1", f.take, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range health {
		c.TellHealth(read)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c, f
}

// wait waits for a condition of the client's state.
func wait(t *testing.T, c *xds.Client, what string, holds func(xds.State) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(c.State(time.Now())); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s: %+v", what, c.State(time.Now()))
		}
	}
}

// has reports whether what a gateway took holds a text.
func has(f *follower, text string) func(xds.State) bool {
	return func(xds.State) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return strings.Contains(f.texts, text)
	}
}

// TestTLS: clients with a certificate of the authority are served, others are not;
// a certificate that is replaced holds for the next connection.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", a.cert)
	a.issue("client", a.cert)
	p := startPlane(t, Config{TLSCert: a.file("server.pem"), TLSKey: a.file("server.key"), TLSClientCA: a.file("ca.pem")}, map[string]string{"a.yaml": oneTenant})
	address := strings.TrimPrefix(p.conn.Target(), "passthrough:///")
	text, err := (&Bootstrap{Server: address, ID: "n", CA: a.file("ca.pem"), Cert: a.file("client.pem"), Key: a.file("client.key")}).For(Forebay)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := xds.ParseBootstrap([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, f := follow(t, boot)
	wait(t, c, "the policy came", func(s xds.State) bool { return s.Source == xds.FromServer })
	if f.takes != 1 {
		t.Errorf("%d policies", f.takes)
	}
	a.issue("server", a.cert)
	other, _ := follow(t, boot)
	wait(t, other, "the policy came over the new certificate", func(s xds.State) bool { return s.Source == xds.FromServer })
	for name, creds := range map[string]xds.BootstrapCreds{
		"without a certificate": {Type: "tls", Config: &xds.TLSConfig{CA: a.file("ca.pem")}},
		"without TLS":           {Type: "insecure"},
	} {
		c, _ := follow(t, &xds.Bootstrap{Node: xds.BootstrapNode{ID: name}, Servers: []xds.BootstrapServer{{URI: address, Creds: []xds.BootstrapCreds{creds}}}})
		wait(t, c, "a client "+name+" is refused", func(s xds.State) bool { return s.Problem != "" && s.Source == xds.FromNowhere })
	}
}

// TestTwoControlPlanes: a gateway goes to the second when the first is gone, and is
// sent nothing that it has.
func TestTwoControlPlanes(t *testing.T) {
	files := map[string]string{"a.yaml": oneTenant}
	one, two := startPlane(t, Config{}, files), startPlane(t, Config{}, files)
	boot := &xds.Bootstrap{Node: xds.BootstrapNode{ID: "n"}}
	for _, p := range []*plane{one, two} {
		boot.Servers = append(boot.Servers, xds.BootstrapServer{URI: strings.TrimPrefix(p.conn.Target(), "passthrough:///"), Creds: []xds.BootstrapCreds{{Type: "insecure"}}})
	}
	c, f := follow(t, boot)
	wait(t, c, "the first answers", func(s xds.State) bool { return s.Server == boot.Servers[0].URI })
	one.Stop()
	wait(t, c, "the second answers", func(s xds.State) bool { return s.Server == boot.Servers[1].URI })
	if f.takes != 1 {
		t.Errorf("%d policies, and both have the same", f.takes)
	}
}

// TestCanaries: of two gateways one gets a new version first, and takes it back when it
// refuses it; what it has held for the time goes to both.
func TestCanaries(t *testing.T) {
	for _, protocol := range []string{"delta", "sotw"} {
		t.Run(protocol, func(t *testing.T) { t.Parallel(); testCanaries(t, protocol) })
	}
}

func testCanaries(t *testing.T, protocol string) {
	p := startPlane(t, Config{CanaryLabel: "tier=test", CanaryHold: 24 * time.Hour, CanaryRequestsMin: 20}, map[string]string{"a.yaml": oneTenant})
	var failed atomic.Uint64
	gateway := func(id string, metadata map[string]any) (*xds.Client, *follower) {
		health := func() xds.Health { return xds.Health{Requests: 100 + failed.Load(), Failed: failed.Load()} }
		if metadata == nil {
			health = func() xds.Health { return xds.Health{Requests: 1000} }
		}
		return followWith(t, xds.Config{HealthEach: 100 * time.Millisecond, Protocol: protocol}, &xds.Bootstrap{Node: xds.BootstrapNode{ID: id, Metadata: metadata}, Servers: []xds.BootstrapServer{{URI: strings.TrimPrefix(p.conn.Target(), "passthrough:///"), Creds: []xds.BootstrapCreds{{Type: "insecure"}}}}}, health)
	}
	canary, first := gateway("canary", map[string]any{"tier": "test"})
	rest, second := gateway("rest", nil)
	wait(t, canary, "it has the first version", has(first, "acme"))
	wait(t, rest, "it has the first version", has(second, "acme"))
	p.write("a.yaml", strings.Replace(oneTenant, "acme", "beta", 1))
	p.look()
	wait(t, canary, "it has the second version", has(first, "beta"))
	wait(t, canary, "its answer is there", func(xds.State) bool {
		page, _ := p.GetStatus(context.Background(), nil)
		return page.Nodes[0].Types[0].AckedVersion == page.Nodes[0].Types[0].CurrentVersion && page.Rollout != ""
	})
	p.look()
	if !has(second, "acme")(xds.State{}) {
		t.Error("the version on trial went to all")
	}
	p.now = p.now.Add(24 * time.Hour)
	p.look()
	wait(t, rest, "it has the second version", has(second, "beta"))
	first.mu.Lock()
	first.refuses = "gamma"
	first.mu.Unlock()
	p.write("a.yaml", strings.Replace(oneTenant, "acme", "gamma", 1))
	wait(t, canary, "it has refused, and was given the second version again", func(s xds.State) bool {
		p.look()
		page, _ := p.GetStatus(context.Background(), nil)
		return s.Refused == 1 && !s.Refusing && strings.Contains(page.Rollout, "taken back: canary refuses it: no gamma")
	})
	if !has(second, "beta")(xds.State{}) {
		t.Error("what the canary refused went to all")
	}
	// A version that it takes, and that makes its requests fail.
	p.write("a.yaml", strings.Replace(oneTenant, "acme", "delta", 1))
	p.look()
	wait(t, canary, "it has the third version", has(first, "delta"))
	failed.Store(30)
	wait(t, canary, "it was given the second version again", func(xds.State) bool {
		p.look()
		page, _ := p.GetStatus(context.Background(), nil)
		return has(first, "beta")(xds.State{}) && strings.Contains(page.Rollout, "of 30 requests at the gateways that have it, 30 failed (100.0%; elsewhere 0.0%)")
	})
	if !has(second, "beta")(xds.State{}) {
		t.Error("what spoiled the canary's requests went to all")
	}
}
