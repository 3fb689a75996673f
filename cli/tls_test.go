package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// openssl runs openssl in dir.
func openssl(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("openssl", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("openssl %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// certify makes NAME.pem and NAME.key, signed by the authority in dir.
func certify(t *testing.T, dir, name, alternatives string) {
	t.Helper()
	openssl(t, dir, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN="+name, "-addext", "subjectAltName="+alternatives, "-keyout", name+".key", "-out", name+".csr")
	openssl(t, dir, "x509", "-req", "-in", name+".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "1", "-copy_extensions", "copyall", "-out", name+".pem")
}

// authority makes ca.pem and ca.key in dir.
func authority(t *testing.T, dir string) {
	t.Helper()
	openssl(t, dir, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
}

// TestTLS has curl and openssl talk to the API over TLS: with a key, with client
// certificates, without either, with one that nobody trusts, and without TLS. Its
// certificate is replaced while a stream runs.
func TestTLS(t *testing.T) {
	for _, name := range []string{"openssl", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIPPED: %s is not installed", name)
		}
	}
	dir, strange := t.TempDir(), t.TempDir()
	authority(t, dir)
	authority(t, strange)
	certify(t, dir, "server", "IP:127.0.0.1")
	certify(t, dir, "shop", "URI:spiffe://local/ns/shop/sa/web")
	certify(t, dir, "other", "URI:spiffe://local/ns/other/sa/web")
	certify(t, strange, "shop", "URI:spiffe://local/ns/shop/sa/web")
	at := func(name string) string { return filepath.Join(dir, name) }
	config := at("forebay.yaml")
	text := fmt.Sprintf(`gateway:
  tls: {certificate: %s, key: %s, client_ca: %s, poll_interval: 50ms}
admission:
  tenants: [{name: shop, keys: [sk-shop]}]
identity:
  mesh_peers: [tls]
  mesh_identities: [{name: shop-web, uri: "spiffe://local/ns/shop/*", tenant: shop}]
`, at("server.pem"), at("server.key"), at("ca.pem"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "serve", "--config", config)
	address := strings.TrimPrefix(p.url, "http://")
	eventually(t, "forebay health says that it is ready", func() bool {
		cmd := exec.Command(program, "health")
		cmd.Env = append(os.Environ(), "FOREBAY_CONFIG="+config, "FOREBAY_LISTEN="+address)
		return cmd.Run() == nil
	})
	curl := func(more ...string) string {
		args := append([]string{"-sS", "--max-time", "20", "--cacert", at("ca.pem"), "https://" + address + "/v1/chat/completions", "-H", "Content-Type: application/json", "-d", `{"model":"forebay-demo","max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`}, more...)
		out, _ := exec.Command("curl", args...).CombinedOutput()
		return string(out)
	}
	certificate := func(dir, name string) []string {
		return []string{"--cert", filepath.Join(dir, name+".pem"), "--key", filepath.Join(dir, name+".key")}
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"key":                   {[]string{"-H", "Authorization: Bearer sk-shop"}, `"finish_reason"`},
		"certificate":           {certificate(dir, "shop"), `"finish_reason"`},
		"certificate of nobody": {certificate(dir, "other"), "no mesh identity has the URI"},
		"neither":               {nil, "there is no API key"},
		"header alone":          {[]string{"-H", "X-Forwarded-Client-Cert: URI=spiffe://local/ns/shop/sa/web"}, "there is no API key"},
		// In TLS 1.3 a client hears of it after its request, as an alert or as a connection that is gone.
		"certificate of an authority of its own":    {certificate(strange, "shop"), "curl: ("},
		"the same with TLS 1.2":                     {append(certificate(strange, "shop"), "--tls-max", "1.2"), "alert"},
		"old TLS":                                   {[]string{"--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"}, "alert"},
		"an authority that did not sign the server": {[]string{"--cacert", filepath.Join(strange, "ca.pem")}, "certificate"},
	} {
		if got := curl(c.args...); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	out, _ := exec.Command("curl", "-sS", "--max-time", "20", "http://"+address+"/readyz").CombinedOutput()
	if !strings.Contains(string(out), "This address speaks TLS") {
		t.Errorf("without TLS: %q", out)
	}
	page, err := exec.Command("curl", "-sS", "--max-time", "20", p.admin+"/metrics").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"client_certificate_unknown", "version", "server_certificate_refused", "plain_http"} {
		if strings.Contains(string(page), `forebay_tls_handshakes_failed_total{reason="`+reason+`"} 0`) || !strings.Contains(p.output(), " reason="+reason+" ") {
			t.Errorf("neither a metric nor the log says %s", reason)
		}
	}
	if got := openssl(t, dir, "s_client", "-connect", address, "-CAfile", "ca.pem", "-verify_return_error", "-alpn", "h2,http/1.1"); !strings.Contains(got, "ALPN protocol: http/1.1") || !strings.Contains(got, "TLSv1.3") {
		t.Errorf("s_client: %s", got)
	}
	p.keepsItsStream(t, dir, address)
	if n := strings.Count(p.output(), `"key":"shop-web"`); n != 1 {
		t.Errorf("%d records name the certificate's identity", n)
	}
}

// keepsItsStream replaces the server's certificate while a stream runs.
func (p *process) keepsItsStream(t *testing.T, dir, address string) {
	t.Helper()
	stream := exec.Command("curl", "-sSN", "--max-time", "60", "--cacert", filepath.Join(dir, "ca.pem"), "https://"+address+"/v1/chat/completions", "-H", "Content-Type: application/json", "-H", "x-api-key: sk-shop",
		"-d", `{"model":"forebay-demo","stream":true,"ignore_eos":true,"max_tokens":1900,"messages":[{"role":"user","content":"hi"}]}`)
	body, err := stream.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	io.ReadFull(body, first)
	serial := func() string { return openssl(t, dir, "s_client", "-connect", address, "-CAfile", "ca.pem") }
	number := func(of string) string {
		return strings.TrimSpace(openssl(t, dir, "x509", "-in", of, "-noout", "-serial"))
	}
	before := number("server.pem")
	if err := os.WriteFile(filepath.Join(dir, "server.key"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "rubbish is not taken", func() bool { serial(); return strings.Contains(p.output(), "were not taken") })
	certify(t, dir, "server", "IP:127.0.0.1")
	after := number("server.pem")
	if before == after {
		t.Fatal("the certificate is the same")
	}
	eventually(t, "the new certificate is shown", func() bool {
		if err := os.WriteFile(filepath.Join(dir, "shown.txt"), []byte(serial()), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		return number("shown.txt") == after
	})
	rest, _ := io.ReadAll(body)
	if err := stream.Wait(); err != nil || !slices.Contains(strings.Split(string(rest), "\n"), "data: [DONE]") {
		t.Errorf("the stream ended with %v: …%q", err, rest[max(0, len(rest)-200):])
	}
}
