package shared

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
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// The password in the file may change while the gateway runs.
func TestPasswordFile(t *testing.T) {
	server := startServer(t)
	file := filepath.Join(t.TempDir(), "password")
	set := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := server.client().Do(context.Background(), "ACL", "SETUSER", "forebay", "reset", "on", ">"+password, "~forebay:*", "resetchannels",
			"+evalsha", "+eval", "+script|load", "+get", "+set", "+time", "+zadd", "+zrem", "+zremrangebyscore", "+zcard", "+pexpire").Err(); err != nil {
			t.Fatal(err)
		}
		server.client().Do(context.Background(), "CLIENT", "KILL", "USER", "forebay")
	}
	set("first%")
	cfg := config(t, server.url())
	cfg.StoreUser, cfg.StorePasswordFile, cfg.BreakerWait = "forebay", file, 20*time.Millisecond
	s := openTest(t, cfg, nil)
	eventually(t, "the first password is taken", func() bool { return s.living() == 1 })
	set("second")
	eventually(t, "the second password is taken", func() bool {
		r, refusal := ask(s, budget.Limits{Concurrency: 1000}, 1, 1)
		if refusal != nil {
			t.Fatal(refusal)
		}
		defer r.Settle(1, 1)
		return !r.Degraded() && !s.Degraded()
	})
}

// TLS with a client certificate, under a name that is not the address.
func TestTLS(t *testing.T) {
	plain := startServer(t)
	if values, err := plain.client().ConfigGet(context.Background(), "tls-port").Result(); err != nil || len(values) == 0 {
		t.Skip("this redis-server is built without TLS: TLS to Redis is NOT tested")
	}
	dir := t.TempDir()
	certificates(t, dir)
	port := freePort(t)
	address := "127.0.0.1:" + port
	path := func(name string) string { return filepath.Join(dir, name) }
	process := exec.Command("redis-server", "--port", "0", "--tls-port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir(),
		"--tls-cert-file", path("cert"), "--tls-key-file", path("key"), "--tls-ca-cert-file", path("cert"), "--tls-auth-clients", "yes")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Process.Kill(); process.Wait() })
	cfg := config(t, "rediss://"+address)
	cfg.StoreCA, cfg.StoreCert, cfg.StoreKey, cfg.StoreServerName, cfg.BreakerWait, cfg.BreakerErrors = path("cert"), path("cert"), path("key"), "redis.example", 20*time.Millisecond, 1
	s := openTest(t, cfg, nil)
	eventually(t, "Redis answers over TLS", func() bool { return s.living() == 1 && !s.Degraded() })
	for what, spoil := range map[string]func(*budget.Config){
		"another name":   func(c *budget.Config) { c.StoreServerName = "other.example" },
		"no certificate": func(c *budget.Config) { c.StoreCert, c.StoreKey = "", "" },
		"no authority":   func(c *budget.Config) { c.StoreCA = "" },
	} {
		bad := cfg
		spoil(&bad)
		s, err := Open(bad, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		eventually(t, what+" is degraded", func() bool { return s.Degraded() && s.living() == 0 })
	}
}

// certificates writes one certificate that is authority, server and client, and its key.
func certificates(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis.example"}, DNSNames: []string{"redis.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
