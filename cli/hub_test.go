package cli

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/hub"
)

const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// hubServer speaks as much of the hub's API as one repository with the demo
// model needs. Downloads wait until open is closed.
func hubServer(t *testing.T, open <-chan struct{}) *httptest.Server {
	text := string(demo.GGUF())
	sum := fmt.Sprintf("%x", sha256.Sum256(demo.GGUF()))
	const name = "fox-Q8_0.gguf"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/models/acme/fox/revision/main", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"sha": hubCommit, "siblings": []any{map[string]any{
			"rfilename": name, "size": len(text), "lfs": map[string]any{"sha256": sum, "size": len(text)},
		}}})
	})
	mux.HandleFunc("GET /acme/fox/resolve/"+hubCommit+"/"+name, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-open:
		case <-r.Context().Done():
		}
		w.Header().Set("X-Linked-Etag", `"`+sum+`"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// hubCommand runs forebay with the hub and the cache of a test.
func hubCommand(t *testing.T, server, home string, args ...string) (out, report string, status int) {
	t.Helper()
	p := prepare(t, "engine") // for its environment
	p.cmd.Args = append(p.cmd.Args[:1], args...)
	p.cmd.Env = append(p.cmd.Env, "HF_ENDPOINT="+server, "HF_HOME="+home, "HF_HUB_CACHE=", "HF_TOKEN=")
	var stdout, stderr strings.Builder
	p.cmd.Stdout, p.cmd.Stderr = &stdout, &stderr
	p.cmd.Run()
	return stdout.String(), stderr.String(), p.cmd.ProcessState.ExitCode()
}

func TestModelPullListRemove(t *testing.T) {
	t.Parallel()
	server, home := hubServer(t, closedChannel()).URL, t.TempDir()
	path := filepath.Join(home, "hub", "models--acme--fox", "snapshots", hubCommit, "fox-Q8_0.gguf")
	if out, report, status := hubCommand(t, server, home, "model", "pull", "hf:acme/fox"); status != 0 || out != path+"\n" || !strings.Contains(report, "100.0 %") {
		t.Fatalf("pull: status %d, %q, %q", status, out, report)
	}
	if out, report, status := hubCommand(t, server, home, "model", "pull", "--quiet", "hf:acme/fox:q8_0"); status != 0 || out != path+"\n" || report != "" {
		t.Errorf("pull again: status %d, %q, %q", status, out, report)
	}
	if out, _, status := hubCommand(t, server, home, "model", "info", "hf:acme/fox"); status != 0 || !strings.Contains(out, path) {
		t.Errorf("info: status %d, %q", status, out)
	}
	broken := filepath.Join(filepath.Dir(path), "broken.gguf")
	if err := os.WriteFile(broken, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, status := hubCommand(t, server, home, "model", "list", "--json")
	var models []listedModel
	if err := json.Unmarshal([]byte(out), &models); err != nil || status != 0 || len(models) != 2 {
		t.Fatalf("list: status %d, %v, %q", status, err, out)
	}
	if got := models[0]; got.Path != broken || got.Problem == "" {
		t.Errorf("the broken file: %+v", got)
	}
	want := listedModel{
		Ref: "hf:acme/fox:fox-Q8_0.gguf", SizeBytes: int64(len(demo.GGUF())), Format: "GGUF 3", Architecture: "llama", Quantisation: "Q8_0",
		Commit: hubCommit, Path: path,
	}
	if models[1] != want {
		t.Errorf("got %+v, want %+v", models[1], want)
	}
	if out, _, status := hubCommand(t, server, home, "model", "list"); status != 0 || strings.Count(out, "\n") != 3 {
		t.Errorf("list: status %d, %q", status, out)
	}
	if out, _, status := hubCommand(t, server, home, "model", "rm", "hf:acme/fox:Q8_0"); status != 0 || !strings.Contains(out, "3.93 MB freed") {
		t.Errorf("rm: status %d, %q", status, out)
	}
	for _, c := range []struct {
		want   string
		status int
		args   []string
	}{
		{`it has "broken.gguf"`, 1, []string{"rm", "hf:acme/fox:fox-Q8_0.gguf"}},
		{"is not in", 1, []string{"rm", "hf:acme/none"}},
		{"no such repository", 1, []string{"pull", "hf:acme/none"}},
		{"is not a model reference", 2, []string{"pull", "acme/fox"}},
		{"needs one reference", 2, []string{"pull"}},
	} {
		_, report, status := hubCommand(t, server, home, append([]string{"model"}, c.args...)...)
		if status != c.status || !strings.Contains(report, c.want) || strings.Contains(report, "goroutine") {
			t.Errorf("%q: status %d, %q; want %d, %q", c.args, status, report, c.status, c.want)
		}
	}
}

// While the model comes, the gateway is there and says so.
func TestServeDownloadsItsModel(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	home := t.TempDir()
	p := prepare(t, "serve", "--model", "hf:acme/fox:Q8_0")
	p.cmd.Env = append(p.cmd.Env, "HF_ENDPOINT="+hubServer(t, open).URL, "HF_HOME="+home, "HF_HUB_CACHE=", "HF_TOKEN=")
	p.begin()
	eventually(t, "readiness says why", func() bool {
		response, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(text), "the model is being downloaded")
	})
	if a := p.ask(chatBody("Hello!", nil)); a.status != http.StatusServiceUnavailable || a.retryAfter == "" {
		t.Errorf("meanwhile: %+v", a)
	}
	close(open)
	p.waitReady()
	if a := p.ask(chatBody("Hello!", map[string]any{"model": "fox-Q8_0"})); a.status != http.StatusOK || a.text == "" {
		t.Errorf("%+v", a)
	}
}

func TestServeEndsWhileItsModelComes(t *testing.T) {
	t.Parallel()
	p := prepare(t, "serve", "--model", "hf:acme/fox")
	p.cmd.Env = append(p.cmd.Env, "HF_ENDPOINT="+hubServer(t, make(chan struct{})).URL, "HF_HOME="+t.TempDir(), "HF_HUB_CACHE=", "HF_TOKEN=")
	p.begin()
	eventually(t, "it listens", func() bool { return p.status("/healthz") == http.StatusOK })
	p.cmd.Process.Signal(os.Interrupt)
	if status := p.exit(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestEngineDownloadsItsModel(t *testing.T) {
	t.Parallel()
	p := prepare(t, "engine", "--socket", filepath.Join(t.TempDir(), "s"), "--model", "hf:acme/fox")
	p.cmd.Env = append(p.cmd.Env, "HF_ENDPOINT="+hubServer(t, closedChannel()).URL, "HF_HOME="+t.TempDir(), "HF_HUB_CACHE=", "HF_TOKEN=")
	p.begin()
	eventually(t, "it is ready", func() bool { return strings.Contains(p.output(), "model=fox-Q8_0") })
}

func TestServeWithoutItsModelEnds(t *testing.T) {
	t.Parallel()
	_, report, status := hubCommand(t, hubServer(t, closedChannel()).URL, t.TempDir(),
		"serve", "--model", "hf:acme/fox:Q4_0", "--listen", "127.0.0.1:0", "--admin", "off")
	if status != 1 || !strings.Contains(report, `no quantisation "Q4_0"; it has "fox-Q8_0.gguf"`) {
		t.Errorf("status %d, %q", status, report)
	}
}

func TestHubVariables(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		environ          string
		cache, token     string
		offline, refused bool
	}{
		{"HOME=/h", "/h/.cache/huggingface/hub", "", false, false},
		{"HOME=/h XDG_CACHE_HOME=/x", "/x/huggingface/hub", "", false, false},
		{"HOME=/h HF_HOME=~/y HF_HUB_OFFLINE=1", "/h/y/hub", "", true, false},
		{"HF_HOME=" + dir, dir + "/hub", "hf_file", false, false},
		{"HF_HOME=" + dir + " HF_TOKEN=hf_env", dir + "/hub", "hf_env", false, false},
		{"HF_HOME=" + dir + " HF_HUB_DISABLE_IMPLICIT_TOKEN=true", dir + "/hub", "", false, false},
		{"HOME=/h HF_TOKEN_PATH=" + token, "/h/.cache/huggingface/hub", "hf_file", false, false},
		{"V=/v HF_HOME=/h HF_HUB_CACHE=$V/c HUGGINGFACE_HUB_CACHE=/d", "/v/c", "", false, false},
		{"HF_HOME=/h HUGGINGFACE_HUB_CACHE=/d TRANSFORMERS_OFFLINE=yes", "/d", "", true, false},
		{"HF_TOKEN_PATH=" + dir, "", "", false, true},
		{"HF_HUB_DOWNLOAD_TIMEOUT=soon", "", "", false, true},
	} {
		console := console{environ: strings.Fields(c.environ)}
		cfg, err := console.hubConfig()
		if c.refused {
			if err == nil {
				t.Errorf("%s: no error", c.environ)
			}
			continue
		}
		if err != nil || cfg.CacheDir != c.cache || cfg.Token != c.token || cfg.Offline != c.offline {
			t.Errorf("%s: cache %q, token %q, offline %v, %v", c.environ, cfg.CacheDir, cfg.Token, cfg.Offline, err)
		}
	}
}

func TestPullText(t *testing.T) {
	for _, c := range []struct {
		p    hub.Progress
		came int64
		took time.Duration
		want string
	}{
		{hub.Progress{File: "m.gguf", Of: 1, Index: 1, Total: 1000}, 0, 0, "  0.0 %  0 B of 1.00 kB  m.gguf"},
		{hub.Progress{File: "m.gguf", Of: 2, Index: 1, Done: 3e9, Total: 4e9}, 1e9, 10 * time.Second, " 75.0 %  3.00 GB of 4.00 GB  100 MB/s  10s left  [1/2]  m.gguf"},
		{hub.Progress{File: "m.gguf", Of: 1, Index: 1, Done: 4e9, Total: 4e9, Finished: true}, 4e9, 20 * time.Second, "100.0 %  4.00 GB of 4.00 GB  200 MB/s  m.gguf"},
	} {
		if got := pullText(c.p, c.came, c.took); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
