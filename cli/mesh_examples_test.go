package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/forebay-io/forebay/xds/control"
)

// documents are the documents of a YAML file.
func documents(t *testing.T, name string) (list []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var d map[string]any
		if err := decoder.Decode(&d); err != nil {
			break
		}
		list = append(list, d)
	}
	return list
}

// at follows keys into maps and lists.
func at(v any, keys ...any) any {
	for _, key := range keys {
		switch k := key.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[k]
		case int:
			l, _ := v.([]any)
			if k >= len(l) {
				return nil
			}
			v = l[k]
		}
	}
	return v
}

// TestMeshPolicies: the policies of the examples are served as they are.
func TestMeshPolicies(t *testing.T) {
	t.Parallel()
	if _, err := control.Read("examples/mesh/policies", 100, 1<<20); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	manifests := documents(t, "examples/mesh/kubernetes.yaml")
	for name, text := range at(manifests[0], "data").(map[string]any) {
		writePolicy(t, dir, name, text.(string))
	}
	files, err := control.Read(dir, 100, 1<<20)
	if err != nil || len(files.Files) != 2 {
		t.Errorf("the ConfigMap: %v", err)
	}
	if docs := documents(t, "examples/mesh/istio-envoyfilter.yaml"); len(docs) != 1 || at(docs[0], "kind") != "EnvoyFilter" {
		t.Errorf("the EnvoyFilter: %v", docs)
	}
}

// TestMeshManifests: each container of ours has a command and flags that exist.
func TestMeshManifests(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, d := range documents(t, "examples/mesh/kubernetes.yaml") {
		for _, kind := range []string{"initContainers", "containers"} {
			list, _ := at(d, "spec", "template", "spec", kind).([]any)
			for i := range list {
				if at(list, i, "image") != "forebay:latest" {
					continue
				}
				var args []string
				for _, arg := range at(list, i, "args").([]any) {
					args = append(args, fmt.Sprint(arg))
				}
				if out, status := run(t, "", append(args, "-h")...); status != 0 {
					t.Errorf("%q: status %d: %s", args, status, out)
				}
				checked++
			}
		}
	}
	if checked != 4 {
		t.Errorf("%d containers of ours", checked)
	}
}

// TestMeshLimits runs the example's Envoy: /v1/ is the gateway's, and another server's
// answers are charged by the tokens that they report.
func TestMeshLimits(t *testing.T) {
	t.Parallel()
	envoy := envoyProgram(t)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"usage": map[string]any{"completion_tokens": 90}})
	}))
	defer other.Close()
	text, err := os.ReadFile("examples/mesh/envoy-limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, port := t.TempDir(), freePorts(t, 1)[0]
	_, otherPort, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	config := strings.NewReplacer("/run/forebay", dir, "port_value: 10000", "port_value: "+port, "port_value: 8000", "port_value: "+otherPort).Replace(string(text))
	writePolicy(t, dir, "envoy.yaml", config)
	p := serve(t, append(slow, "--listen_socket", filepath.Join(dir, "api.sock"), "--envoy.listen", "unix:"+filepath.Join(dir, "limits.sock"),
		"--admission.tenants", "[{name: a, keys: [k], limits: {output_tokens_per_minute: 600}}]")...)
	e := &process{t: t, ended: make(chan struct{})}
	e.cmd = exec.Command(envoy, "-c", filepath.Join(dir, "envoy.yaml"), "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn")
	e.cmd.Stdout, e.cmd.Stderr = e, e
	e.begin()
	ask := func(path string) int {
		r, _ := http.NewRequest("GET", "http://127.0.0.1:"+port+path, nil)
		r.Header.Set("Authorization", "Bearer k")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	eventually(t, "Envoy leads to the gateway", func() bool { return ask("/v1/models") == http.StatusOK })
	// 600 a minute are 100 at once; each answer reports 90.
	eventually(t, "the tokens of the answers are charged", func() bool { return ask("/other/chat") == http.StatusTooManyRequests })
	if p.metric(`forebay_ratelimit_decisions_total{result="ok"}`) < 4 { // two answers, each asked for and charged
		t.Error("it refused before anything was charged")
	}
}
