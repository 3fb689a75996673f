package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/demo"
)

// llamaModel is a small model that llama.cpp loads.
const llamaModel = "../shared/conformance/arch/llama-gqa-tied.gguf"

// llamaProgram runs llama.cpp's own server, from the Python package xllamacpp.
const llamaProgram = `
import sys, xllamacpp as x
p = x.CommonParams()
p.model.path, host, p.port, p.n_parallel, p.n_ctx = sys.argv[1], sys.argv[2], int(sys.argv[3]), 2, 2048
p.hostnames, p.endpoint_metrics, p.warmup = [host], True, False
p.cpuparams.n_threads = 1
s = x.Server(p)
print("ready", flush=True)
sys.stdin.read()
`

// needLlama skips the test where there is no llama-server.
func needLlama(t *testing.T) {
	t.Helper()
	if exec.Command("python3", "-c", "import xllamacpp").Run() != nil {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "llama-server") {
			t.Fatal("llama-server is required: python3 -m pip install xllamacpp brings it")
		}
		t.Skip("SKIPPED: there is no llama-server here; python3 -m pip install xllamacpp brings it")
	}
}

// llamaServer starts llama-server on TCP or on a Unix socket, and returns its URL for
// serve --upstream and a client of its own.
func llamaServer(t *testing.T, model, socket string) (url string, client *http.Client, base string) {
	t.Helper()
	needLlama(t)
	if _, err := os.Stat(model); err != nil {
		t.Skip("SKIPPED: there is no model for llama-server here: ", err)
	}
	host, port := socket, "1"
	url, base = "unix:"+socket, "http://llama"
	client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	if socket == "" {
		host, port = "127.0.0.1", freePorts(t, 1)[0]
		url, client = "http://127.0.0.1:"+port, &http.Client{Transport: &http.Transport{}}
		base = url
	}
	cmd := exec.Command("python3", "-c", llamaProgram, model, host, port)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("llama-server did not start: %q, %v", line, err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return url, client, base
}

var llamaMetric = regexp.MustCompile(`(?m)^llamacpp:requests_(processing|deferred) (\d+)`)

// llamaLoad is what llama-server computes and what waits in its queue.
func llamaLoad(t *testing.T, client *http.Client, base string) (processing, deferred int) {
	t.Helper()
	response, err := client.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	for _, m := range llamaMetric.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[2])
		if m[1] == "processing" {
			processing = n
		} else {
			deferred = n
		}
	}
	return processing, deferred
}

// TestLlamaServer: a real llama-server behind the gateway, on both kinds of socket. Its
// answers and usages are its own; a client that leaves frees its slot; and a backlog
// waits in our queue and not in its own, where an urgent request passes it.
func TestLlamaServer(t *testing.T) {
	for name, socket := range map[string]string{"TCP": "", "Unix socket": filepath.Join(t.TempDir(), "l.sock")} {
		t.Run(name, func(t *testing.T) {
			url, client, base := llamaServer(t, llamaModel, socket)
			p := serve(t, "--upstream", url, "--upstream.tokenizer", llamaModel)
			if !strings.Contains(p.output(), "sequences=2 sequences_known=true") {
				t.Errorf("its slots are not known:\n%s", p.output())
			}
			body := chatBody("once upon a time", map[string]any{"model": "llama-gqa-tied", "max_tokens": 20, "seed": 1})
			text, _ := json.Marshal(body)
			response, err := client.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			direct, _ := io.ReadAll(response.Body)
			response.Body.Close()
			relayed := p.ask(body)
			if a, b := essence(t, string(direct)), essence(t, relayed.raw); a != b {
				t.Errorf("direct %s\nrelayed %s", a, b)
			}
			body["grammar"] = "no grammar"
			if got := p.ask(body); got.status != http.StatusBadRequest || !strings.Contains(got.raw, "grammar") {
				t.Errorf("a bad grammar: %d %s", got.status, got.raw)
			}
			if got := said(t, p, "upstream", "--json"); !strings.Contains(got, `"tokenizer":"trusted"`) || strings.Contains(p.output(), "counts other tokens") {
				t.Errorf("our count of its prompts is not llama-server's: %s\n%s", got, p.output())
			}
			leave(t, p, client, base)
			if socket == "" {
				backlog(t, p, client, base)
			}
		})
	}
}

// TestLlamaLoadsWhatIsWritten: llama.cpp loads the demo model, and every file that is
// written of it. Of the demo model it makes the tokens that the reference has.
func TestLlamaLoadsWhatIsWritten(t *testing.T) {
	needLlama(t)
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.gguf")
	if err := os.WriteFile(whole, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"", "q8_0", "q6_k", "q4_k", "q4_0"} {
		path := whole
		if kind != "" {
			path = filepath.Join(dir, kind+".gguf")
			if words, status := run(t, "", "model", "quantize", whole, path, "--type", kind); status != 0 {
				t.Fatalf("status %d: %s", status, words)
			}
		}
		_, client, base := llamaServer(t, path, filepath.Join(dir, kind+".sock"))
		response, err := client.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"Hello!"}],"temperature":0,"max_tokens":20}`))
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := essence(t, string(raw)); response.StatusCode != http.StatusOK || kind == "" && got != `[{"stop" {"Hello! How can I help you today?"}}] {Prompt:10 Completion:10}` {
			t.Errorf("%s: %s", kind, raw)
		}
	}
}

// said is what a command says of the running p.
func said(t *testing.T, p *process, args ...string) string {
	t.Helper()
	out, status := run(t, "", append(args, "--admin", strings.TrimPrefix(p.admin, "http://"))...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	return out
}

// essence is the text and the usage of an answer.
func essence(t *testing.T, raw string) string {
	t.Helper()
	var reply struct {
		Choices []struct {
			Finish  string `json:"finish_reason"`
			Message struct{ Content string }
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.Unmarshal([]byte(raw), &reply); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return fmt.Sprintf("%q %+v", reply.Choices, reply.Usage)
}

// leave starts an answer, leaves, and waits until its slot is free.
func leave(t *testing.T, p *process, client *http.Client, base string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	response, err := p.post(ctx, chatBody("tell me", map[string]any{"model": "llama-gqa-tied", "max_tokens": 400, "ignore_eos": true, "stream": true}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel()
	response.Body.Close()
	eventually(t, "the slot of the client that left is free", func() bool {
		processing, deferred := llamaLoad(t, client, base)
		return processing+deferred == 0
	})
}

// backlog gives the gateway far more offline work than slots, and then a request that
// somebody waits for.
func backlog(t *testing.T, p *process, client *http.Client, base string) {
	t.Helper()
	const offline = 12
	var done atomic.Int32
	ask := func(class string, tokens int) {
		text, _ := json.Marshal(chatBody("count", map[string]any{"model": "llama-gqa-tied", "max_tokens": tokens, "ignore_eos": true}))
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(string(text)))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Forebay-Class", class)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			return
		}
		raw, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.Contains(string(raw), fmt.Sprintf(`"completion_tokens":%d`, tokens)) {
			t.Errorf("%s: %d %s", class, response.StatusCode, raw)
		}
	}
	finished := make(chan struct{})
	for range offline {
		go func() {
			ask("offline", 150)
			if done.Add(1) == offline {
				close(finished)
			}
		}()
	}
	eventually(t, "the backlog has begun", func() bool {
		processing, _ := llamaLoad(t, client, base)
		return processing > 0
	})
	ask("interactive", 10)
	if n := done.Load(); n > offline/2 {
		t.Errorf("the urgent request came after %d of %d of the backlog", n, offline)
	}
	most := 0
	for {
		_, deferred := llamaLoad(t, client, base)
		most = max(most, deferred)
		select {
		case <-finished:
			if most > 1 {
				t.Errorf("%d requests waited in llama-server's own queue", most)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}
