package cli

import (
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// askAs is the status of a request with a key.
func (p *process) askAs(key string) int {
	p.t.Helper()
	r, _ := http.NewRequest("GET", p.url+"/v1/models", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// TestHangUpReloads: SIGHUP takes tenants and keys, keeps what runs, names what needs
// a restart, and takes nothing where there is a mistake.
func TestHangUpReloads(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored, as under nohup, and so the program ignores it too")
	}
	dir := t.TempDir()
	config, keys := filepath.Join(dir, "f.yaml"), filepath.Join(dir, "keys.yaml")
	configure := func(text string) {
		if err := os.WriteFile(config, []byte("identity: {keys: "+keys+", poll_interval: 1h}\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newKey := func(name string) string {
		out, status := run(t, "", "key", "new", name, "--tenant", "acme", "--config", config)
		lines := strings.Fields(out)
		if status != 0 {
			t.Fatalf("status %d: %s", status, out)
		}
		return lines[len(lines)-1]
	}
	configure("admission: {tenants: [{name: acme}]}\n")
	key := newKey("first")
	p := serve(t, append(slow, "--config", config, "--capture.rate", "3")...)
	p.key = key
	s := p.stream(chatBody("Tell me a story.", map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 300}))
	if err := syscall.Kill(p.enginePid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	second := newKey("second")
	configure("admission: {tenants: [{name: acme}, {name: other, keys: [o]}]}\ngateway: {limits: {messages_max: 7}}\ncapture: {rate: 5}\n")
	p.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "the new key holds", func() bool { return p.askAs(second) == 200 && p.askAs("o") == 200 })
	eventually(t, "the log names the rest", func() bool {
		return strings.Contains(p.output(), "changed=[admission.tenants]") && strings.Contains(p.output(), "settings=[gateway.limits.messages_max]")
	})
	configure("admission: {tenants: [{name: acme}]}\ngateway: {limits: {mesages_max: 7}}\n")
	p.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "the mistake is in the log", func() bool {
		return strings.Contains(p.output(), "gateway.limits.mesages_max is not a known key")
	})
	if p.askAs("o") != 200 || p.askAs(key) != 200 {
		t.Error("a configuration with a mistake was taken")
	}
	configure("admission: {tenants: [{name: beta}]}\n")
	p.cmd.Process.Signal(syscall.SIGHUP)
	eventually(t, "the key files belong to it", func() bool {
		return strings.Contains(p.output(), `there is no tenant \"acme\" in admission.tenants`)
	})
	if p.askAs("o") != 200 || p.askAs(key) != 200 {
		t.Error("tenants without their keys were taken")
	}
	if a := <-s; !a.done || a.errors > 0 {
		t.Errorf("the running stream: done %v, %d errors: %s", a.done, a.errors, a.raw)
	}
}

func TestKeyCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"key new a --tenant acme", 2, "Give --file PATH, or set identity.keys"},
		{"key new --tenant acme --file k.yaml", 2, "takes the name of the key"},
		{"key new a --file k.yaml", 2, "needs --tenant TENANT"},
		{"key new a --tenant acme --file k.yaml --expires soon", 2, "is not 90d, 12h"},
		{"key new a --tenant acme --file k.yaml --expires 2001-01-01", 2, "is over already"},
		{"key new a --tenant acme --file k.yaml --requests_per_minute many", 1, "is not a whole number"},
		{"key new a --tenant acme --file k.yaml --expires 90d --requests_per_minute 5", 0, "fbk_"},
		{"key new a --tenant acme --file k.yaml", 1, "has the name \"a\", as [0] has"},
		{"key list --file k.yaml", 0, "a     acme    active"},
		{"key list --file k.yaml --json", 0, `"state": "active"`},
		{"key list --file k.yaml --json", 0, `"requests_per_minute: 5"`},
		{"key revoke b --file k.yaml", 1, "there is no key \"b\""},
		{"key revoke a --file k.yaml", 0, "a is revoked in k.yaml"},
		{"key list --file k.yaml", 0, "a     acme    revoked"},
		{"config check --identity.keys k.yaml --admission.tenants [{name:acme}]", 0, "valid"},
		{"config check --identity.keys k.yaml --admission.tenants [{name:b}]", 1, "there is no tenant \"acme\""},
		{"key", 2, "key is followed by one of new, list, revoke"},
	} {
		if out, status := runIn(t, dir, "", strings.Fields(c.args)...); status != c.status || !strings.Contains(out, c.want) {
			t.Errorf("%s: status %d, %s", c.args, status, out)
		}
	}
}
