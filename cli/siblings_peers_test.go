package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// peers starts one sidecar for each name, which find each other by a list and a name,
// and speak TLS. What more says of a name is added to its flags.
func peers(t *testing.T, names string, more map[string][]string) (all []replica) {
	t.Helper()
	dir, ports := t.TempDir(), freePorts(t, len(names))
	writeCertificate(t, dir, "fleet")
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret of all replicas"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := []string{"dns:localhost:" + ports[0]}
	for _, port := range ports[1:] {
		list = append(list, "127.0.0.1:"+port)
	}
	for i, name := range names {
		args := []string{"serve", "--siblings.peers", "[" + strings.Join(list, ", ") + "]", "--siblings.listen", "127.0.0.1:" + ports[i], "--siblings.name", string(name),
			"--siblings.secret_file", secret, "--siblings.tls_cert", filepath.Join(dir, "cert.pem"), "--siblings.tls_key", filepath.Join(dir, "key.pem"), "--siblings.tls_ca", filepath.Join(dir, "cert.pem"),
			"--siblings.interval", "20ms", "--siblings.grain_tokens", "16", "--siblings.gain_min", "1ms"}
		all = append(all, replica{start(t, append(args, more[string(name)]...)...), string(name)})
	}
	for _, r := range all {
		r.waitReady()
	}
	return all
}

// Siblings of a list need no Redis: what one has computed another does not compute
// again. One with other certificates gets nothing, and one that dies is left alone.
func TestSiblingsWithoutRedis(t *testing.T) {
	t.Parallel()
	foreign := t.TempDir()
	writeCertificate(t, foreign, "foreign")
	all := peers(t, "abx", map[string][]string{"x": {
		"--siblings.tls_cert", filepath.Join(foreign, "cert.pem"), "--siblings.tls_key", filepath.Join(foreign, "key.pem"), "--siblings.tls_ca", filepath.Join(foreign, "cert.pem"),
	}})
	a, b, x := all[0], all[1], all[2]
	for _, r := range []replica{a, b} {
		eventually(t, r.name+" knows the other", func() bool { return r.siblings() == 1 })
	}
	body := chatBody(prompt(1), map[string]any{"max_tokens": 12, "temperature": 0})
	by, cached, first := a.served(body)
	if by != "a" || cached != 0 {
		t.Fatalf("the first was served by %q, %d cached", by, cached)
	}
	b.knows(a, true)
	if by, cached, got := b.served(body); by != "a" || cached < 1000 || got.text != first.text {
		t.Errorf("b: served by %q (%s), %d cached, %q, want %q", by, got.raw, cached, got.text, first.text)
	}
	if by, cached, got := x.served(body); by != "x" || cached != 0 || got.text != first.text || len(x.cache().Siblings) != 0 {
		t.Errorf("x: served by %q (%s), %d cached, %q, want %q", by, got.raw, cached, got.text, first.text)
	}
	a.cmd.Process.Kill()
	if by, _, got := b.served(body); by != "b" || got.text != first.text {
		t.Errorf("a is dead: served by %q, %q, want %q", by, got.text, first.text)
	}
	eventually(t, "b knows that a has gone", func() bool { return len(b.cache().Siblings) == 0 && !b.cache().StoreUp })
}
