package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// startControl runs forebay control over a folder, and kills it when the test ends.
func startControl(t *testing.T, dir, address string, args ...string) *process {
	t.Helper()
	admin := freePorts(t, 1)[0]
	p := &process{t: t, url: "http://127.0.0.1:" + admin, admin: "http://127.0.0.1:" + admin, ended: make(chan struct{})}
	p.cmd = exec.Command(program, append([]string{"control", "--dir", dir, "--listen", address, "--admin", "127.0.0.1:" + admin, "--poll_interval", "20ms"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.begin()
	eventually(t, "the control plane serves", func() bool { return strings.Contains(p.output(), "control: serving") })
	return p
}

// policyState is what /readyz says of the policy.
type policyState struct {
	Source, Version, Server, Problem string
	Stale                            int `json:"stale_seconds"`
}

func (p *process) policyState() policyState {
	response, err := http.Get(p.url + "/readyz")
	if err != nil {
		return policyState{}
	}
	defer response.Body.Close()
	var page struct{ Policy policyState }
	json.NewDecoder(response.Body).Decode(&page)
	return page.Policy
}

func writePolicy(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// tenantOf is a policy of one tenant with a key.
func tenantOf(name, key string) string {
	return fmt.Sprintf("admission:\n  tenants:\n  - name: %s\n    keys: [\"sha256:%x\"]\n", name, sha256.Sum256([]byte(key)))
}

// TestPolicyFromControlPlane: a gateway takes tenants and classes from a control
// plane, live; refuses what does not fit with its own files, and says why on both
// sides; serves on when the control plane is gone, and starts without it.
func TestPolicyFromControlPlane(t *testing.T) {
	t.Parallel()
	dir, own := t.TempDir(), t.TempDir()
	address := "127.0.0.1:" + freePorts(t, 1)[0]
	writePolicy(t, dir, "tenants.yaml", tenantOf("acme", "one"))
	control := startControl(t, dir, address)
	bootstrap, status := run(t, "", "control", "bootstrap", "forebay", "--server", address, "--id", "sidecar-1")
	if status != 0 {
		t.Fatal(bootstrap)
	}
	boot := filepath.Join(own, "bootstrap.json")
	writePolicy(t, own, "bootstrap.json", bootstrap)
	writePolicy(t, own, "f.yaml", "admission: {tenants: [{name: local, keys: [local]}], running_sequences_max: 7}\n")
	args := append(slow, "--config", filepath.Join(own, "f.yaml"), "--xds", boot, "--xds.state_dir", filepath.Join(own, "state"))
	p := serve(t, args...)
	if p.askAs("one") != 200 || p.askAs("local") != 401 {
		t.Error("the tenants are not those of the policy")
	}
	p.key = "one"
	s := p.stream(chatBody("Tell me a story.", map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 200}))

	writePolicy(t, dir, "tenants.yaml", tenantOf("acme", "one")+tenantOf("beta", "two")[len("admission:\n  tenants:\n"):]+"  classes: [{name: chat, first_token_goal: 3s}]\n")
	eventually(t, "the new tenant holds", func() bool { return p.askAs("two") == 200 && p.askAs("one") == 200 })
	writePolicy(t, dir, "tenants.yaml", tenantOf("acme", "one")+"  classes: [{name: chat, level: batch}]\n")
	const why = "tenants.yaml:5: admission.classes: chat is of the level interactive until a restart"
	eventually(t, "the refusal is told on both sides", func() bool {
		page, _ := run(t, "", "control", "status", "--server", address)
		return strings.Contains(p.policyState().Problem, why) && strings.Contains(page, "refused") && strings.Contains(page, why)
	})
	if p.askAs("two") != 200 {
		t.Error("a refused policy was taken")
	}
	for sample, want := range map[string]float64{
		`forebay_control_nodes{kind="forebay",state="refused"}`: 1, "forebay_control_files_broken": 0, "forebay_control_refusals_total": 1, "forebay_control_responses_total": 3,
	} {
		if got := control.metric(sample); got != want {
			t.Errorf("%s is %v, want %v", sample, got, want)
		}
	}
	if control.status("/readyz") != http.StatusOK {
		t.Error("the control plane is not ready")
	}
	if a := <-s; !a.done || a.errors > 0 {
		t.Errorf("the running stream: done %v, %d errors", a.done, a.errors)
	}
	writePolicy(t, dir, "tenants.yaml", tenantOf("acme", "three"))
	eventually(t, "the next version holds", func() bool { return p.askAs("three") == 200 && p.askAs("two") == 401 })
	if state := p.policyState(); state.Source != "live" || state.Stale != 0 || state.Server != address || state.Problem != "" {
		t.Errorf("state %+v", state)
	}

	control.cmd.Process.Kill()
	<-control.ended
	eventually(t, "the loss is told", func() bool { return p.policyState().Server == "" })
	if p.askAs("three") != 200 {
		t.Error("the policy went with the control plane")
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.exit()
	p = serve(t, args...)
	if state := p.policyState(); state.Source != "kept" || !strings.Contains(state.Problem, "refused") || p.askAs("three") != 200 || p.askAs("local") != 401 {
		t.Errorf("the start without control plane: %+v", state)
	}
	writePolicy(t, dir, "tenants.yaml", tenantOf("acme", "four"))
	startControl(t, dir, address)
	eventually(t, "the control plane is back", func() bool { return p.askAs("four") == 200 && p.policyState().Source == "live" })
}

// TestPolicyByAPI: what is written by the control plane's API holds at a gateway, and a
// mistake is told to the writer.
func TestPolicyByAPI(t *testing.T) {
	t.Parallel()
	dir, own, ports := t.TempDir(), t.TempDir(), freePorts(t, 2)
	address, api := "127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	const token = "0123456789abcdef"
	writePolicy(t, own, "token", token)
	writePolicy(t, dir, "tenants.yaml", tenantOf("acme", "one"))
	startControl(t, dir, address, "--api", "127.0.0.1:"+ports[1], "--api_token_file", filepath.Join(own, "token"))
	bootstrap, _ := run(t, "", "control", "bootstrap", "forebay", "--server", address, "--id", "sidecar-1")
	writePolicy(t, own, "bootstrap.json", bootstrap)
	p := serve(t, "--xds", filepath.Join(own, "bootstrap.json"))
	put := func(text string) (int, string) {
		r, _ := http.NewRequest("PUT", api+"/v1/files/tenants.yaml", strings.NewReader(text))
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(answer)
	}
	if status, answer := put("admission:\n  tenants: [{name: a, weight: 900}]\n"); status != http.StatusUnprocessableEntity || !strings.Contains(answer, "tenants.yaml:2: admission.tenants[0].weight") {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := put(tenantOf("acme", "two")); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
	eventually(t, "what was written holds", func() bool { return p.askAs("two") == 200 && p.askAs("one") == 401 })
}

// TestStartWithoutPolicy: a gateway that has neither a policy nor tenants does not
// serve everybody; one with tenants of its own serves those.
func TestStartWithoutPolicy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	boot := filepath.Join(dir, "b.json")
	writePolicy(t, dir, "b.json", `{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}], "node": {"id": "n"}}`)
	out, status := run(t, "", "serve", "--xds", boot, "--xds.first_wait", "200ms", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if status != 1 || !strings.Contains(out, "everybody could use this gateway") || !strings.Contains(out, "connection refused") {
		t.Errorf("status %d: %s", status, out)
	}
	p := prepare(t, "serve", "--xds.first_wait", "200ms", "--admission.tenants", "[{name: a, keys: [k]}]")
	p.cmd.Env = append(p.cmd.Env, bootstrapVar+"="+boot)
	p.begin()
	p.waitReady()
	if state := p.policyState(); state.Source != "none" || p.askAs("k") != 200 || p.askAs("x") != 401 {
		t.Errorf("state %+v", state)
	}
}
