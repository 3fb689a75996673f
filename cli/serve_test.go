package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/supervise"
)

// slow makes the demo model slow enough to be caught in the middle of an answer.
var slow = []string{"--engine.kernels", "ref", "--engine.threads", "1"}

func TestServeAnswers(t *testing.T) {
	t.Parallel()
	p := serve(t)
	plain := p.ask(chatBody("Hello!", nil))
	if plain.status != http.StatusOK || plain.text == "" {
		t.Fatalf("plain: %+v", plain)
	}
	streamed := <-p.stream(chatBody("Hello!", map[string]any{"stream": true}))
	if !streamed.done || streamed.errors > 0 || streamed.text != plain.text {
		t.Errorf("streamed %q, plain %q: %s", streamed.text, plain.text, streamed.raw)
	}
	response, err := http.Get(p.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var models struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(response.Body).Decode(&models); err != nil || len(models.Data) != 1 || models.Data[0].ID != "forebay-demo" {
		t.Errorf("models: %+v, %v", models, err)
	}
	for _, want := range []string{p.url, p.admin, "forebay-demo", "curl "} {
		if !strings.Contains(p.output(), want) {
			t.Errorf("the start does not print %q", want)
		}
	}
	if out, status := run(t, "Hello!", "chat", "--temperature", "0", "--url", p.url); status != 0 || out != plain.text+"\n" {
		t.Errorf("forebay chat: status %d, %q; want %q", status, out, plain.text)
	}
	for _, c := range []struct{ said, url, want string }{
		{"Hello!", p.url + "/v1/", plain.text},
		{" ", p.url, "there is nothing to say"},
		{"a\xff", p.url, "not valid UTF-8"},
	} {
		if out, _ := run(t, c.said, "chat", "--temperature", "0", "--url", c.url); !strings.Contains(out, c.want) {
			t.Errorf("forebay chat, told %q: %q, want %q", c.said, out, c.want)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	chat := exec.Command(program, "chat", "--url", p.url, "Hello!")
	if chat.Stdout = full; chat.Run() == nil {
		t.Error("forebay chat succeeds though its output is lost")
	}
	if out, status := run(t, "", "health", "--url", p.url); status != 0 {
		t.Errorf("forebay health: status %d, %s", status, out)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.exit(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	if left, _ := filepath.Glob(filepath.Join(p.runtimeDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// runtimeDir is the directory that p was given for its socket.
func (p *process) runtimeDir() string {
	return strings.TrimPrefix(p.cmd.Env[len(p.cmd.Env)-1], "XDG_RUNTIME_DIR=")
}

// reference is one chat with the greedy answer of an independent implementation.
type reference struct {
	Messages json.RawMessage
	IDs      []int32
	Margins  []float64 // first minus second logit
	Text     string
}

// TestAnswersEqualReference asks for all references at once: the answers must not
// depend on the company.
func TestAnswersEqualReference(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		file, references string // the embedded model where file is ""
		count            int
		closeMargin      float64 // below it a choice may fall either way
	}{
		{"", "demo-model/reference.jsonl", 20, 0.05},
		{"models/SmolLM2-135M-Instruct.Q4_1.gguf", "models/SmolLM2-135M-Instruct.Q4_1.reference.jsonl", 8, 0.1},
	} {
		t.Run(m.references, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(shared(t, m.references))
			if err != nil {
				t.Fatal(err)
			}
			var args []string
			name, data := demo.Name, demo.GGUF()
			if m.file != "" {
				path := shared(t, m.file)
				args, name = []string{"--model", path}, strings.TrimSuffix(filepath.Base(path), ".gguf")
				if data, err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
			f, err := gguf.Parse(m.references, data)
			if err != nil {
				t.Fatal(err)
			}
			tokens, err := tokenizer.FromGGUF(f)
			if err != nil {
				t.Fatal(err)
			}
			p := serve(t, args...)
			var asked sync.WaitGroup
			count := 0
			for line := range strings.Lines(string(text)) {
				var r reference
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatal(err)
				}
				count++
				asked.Go(func() { p.compare(name, &r, tokens, m.closeMargin) })
			}
			asked.Wait()
			if count < m.count {
				t.Errorf("only %d references", count)
			}
		})
	}
}

// compare asks for the tokens of an answer; they may leave the reference only
// where its choice was close.
func (p *process) compare(model string, r *reference, tokens *tokenizer.Tokenizer, closeMargin float64) {
	a := p.ask(map[string]any{
		"model": model, "temperature": 0, "max_tokens": len(r.IDs), "messages": r.Messages, "logprobs": true,
		"service_tier": "flex", // which promises no first token: all come at once, to a machine that may be slow
	})
	var reply struct {
		Choices []struct {
			Logprobs struct{ Content []struct{ Bytes []int } }
		}
	}
	if err := json.Unmarshal([]byte(a.raw), &reply); err != nil || len(reply.Choices) != 1 {
		p.t.Errorf("%s: %v: %s", r.Messages, err, a.raw)
		return
	}
	got := reply.Choices[0].Logprobs.Content
	for i, id := range r.IDs {
		same := i >= len(got) && tokens.IsEnd(id)
		if i < len(got) {
			same = fmt.Sprint(got[i].Bytes) == fmt.Sprint(tokens.Bytes(id))
		}
		if same {
			continue
		}
		if r.Margins[i] >= closeMargin {
			p.t.Errorf("%s: differs at step %d, where the margin is %g:\ngot  %q\nwant %q", r.Messages, i, r.Margins[i], a.text, r.Text)
		}
		return
	}
	if a.text != r.Text {
		p.t.Errorf("%s: same tokens, but text %q, want %q", r.Messages, a.text, r.Text)
	}
}

// A killed engine ends its streams with an error; its successor
// takes the same socket path.
func TestKilledEngine(t *testing.T) {
	t.Parallel()
	p := serve(t, slow...)
	var streams []<-chan answer
	for range 8 {
		streams = append(streams, p.stream(chatBody("Tell me a story about a fox in the forest.", long)))
	}
	before := p.enginePid()
	syscall.Kill(before, syscall.SIGKILL)
	for i, s := range streams {
		if a := <-s; a.done || a.errors != 1 {
			t.Errorf("stream %d: done %v, %d error events; want one error and no [DONE]", i, a.done, a.errors)
		}
	}
	eventually(t, "a plain request succeeds", func() bool {
		a := p.ask(chatBody("Hello!", nil))
		if a.status != http.StatusOK && (a.status != http.StatusServiceUnavailable || a.retryAfter == "" || a.errors != 1) {
			t.Fatalf("meanwhile: %+v", a)
		}
		return a.status == http.StatusOK
	})
	p.waitReady()
	if after := p.enginePid(); after == before || alive(before) {
		t.Errorf("engine was %d and is %d", before, after)
	}
	p.waitIdle()
}

// waitIdle waits until nothing runs and no page is in use.
func (p *process) waitIdle() {
	p.t.Helper()
	eventually(p.t, "nothing runs", func() bool {
		m := p.metrics()
		return m["forebay_requests_running"] == "0" && m["forebay_engine_sequences"] == "0" && m["forebay_kv_pages_used"] == "0"
	})
}

// metrics are the samples of the admin address that have no labels.
func (p *process) metrics() map[string]string {
	p.t.Helper()
	response, err := http.Get(p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	samples := map[string]string{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			samples[name] = value
		}
	}
	return samples
}

// While the engine cannot come back, requests and readiness say why; they do not hang.
func TestCrashLoopIsVisible(t *testing.T) {
	t.Parallel()
	p := serve(t, "--supervise.restart_wait_min", "1m", "--supervise.restart_wait_max", "1m")
	first := p.enginePid()
	syscall.Kill(first, syscall.SIGKILL)
	var second int
	eventually(t, "the engine is back", func() bool {
		pids := p.children()
		if len(pids) == 1 && pids[0] != first {
			second = pids[0]
		}
		return second != 0
	})
	syscall.Kill(second, syscall.SIGKILL)
	eventually(t, "readiness tells why", func() bool {
		response, err := http.Get(p.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body := make([]byte, 4096)
		n, _ := response.Body.Read(body)
		return response.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(body[:n]), "(signal: killed); it starts again in ")
	})
	if a := p.ask(chatBody("Hello!", nil)); a.status != http.StatusServiceUnavailable || a.retryAfter == "" {
		t.Errorf("without an engine: %+v", a)
	} else if seconds, _ := strconv.Atoi(a.retryAfter); seconds < 5 {
		t.Errorf("the engine starts again in about a minute, and Retry-After is %q", a.retryAfter)
	}
	if p.status("/healthz") != http.StatusOK {
		t.Error("not alive while the engine is away")
	}
}

// Ready only when the engine is, alive all the time.
func TestReadiness(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	p := start(t, "gateway", "--socket", socket)
	eventually(t, "the gateway listens", func() bool { return p.status("/healthz") == http.StatusOK })
	if code := p.status("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("readyz is %d without an engine", code)
	}
	if a := p.ask(chatBody("Hello!", nil)); a.status != http.StatusServiceUnavailable || a.retryAfter == "" {
		t.Errorf("a request without an engine: %+v", a)
	}
	if a := p.ask(chatBody("Hello!", nil)); strings.Contains(a.raw, socket) {
		t.Errorf("the client is told a path: %s", a.raw)
	}
	if want := `msg="waiting for the engine" reason="the engine is not reachable: no engine is serving ` + socket; !strings.Contains(p.output(), want) {
		t.Errorf("the log has no %q", want)
	}
	engine := start(t, "engine", "--socket", socket)
	p.waitReady()
	if a := p.ask(chatBody("Hello!", nil)); a.status != http.StatusOK {
		t.Errorf("after ready: %+v", a)
	}
	engine.cmd.Process.Kill()
	eventually(t, "the loss is logged", func() bool { return strings.Contains(p.output(), `msg="the engine is lost"`) })
	start(t, "engine", "--socket", socket)
	eventually(t, "the return is logged", func() bool { return strings.Contains(p.output(), `msg="the engine is back"`) })
}

func TestNoEngineWithoutGateway(t *testing.T) {
	t.Parallel()
	p := serve(t, slow...)
	engine := p.enginePid()
	p.stream(chatBody("Tell me a story.", long))
	p.cmd.Process.Kill()
	eventually(t, "the engine is gone", func() bool { return !alive(engine) })
}

// Where there is no death signal, the closed standard input is what ends it.
func TestEngineEndsWithItsLifeline(t *testing.T) {
	t.Parallel()
	out, status := run(t, "", "engine", "--lifeline", "--socket", filepath.Join(t.TempDir(), "s"))
	if status != 1 {
		t.Errorf("status %d with a closed lifeline, %q", status, out)
	}
}

// An engine that stays keeps nothing of a gateway that went.
func TestRestartedGateways(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	start(t, append([]string{"engine", "--socket", socket}, slow...)...)
	for range 3 {
		p := start(t, "gateway", "--socket", socket)
		p.waitReady()
		for range 4 {
			p.stream(chatBody("Tell me a story.", long))
		}
		p.cmd.Process.Kill()
		<-p.ended
	}
	p := start(t, "gateway", "--socket", socket)
	p.waitReady()
	p.waitIdle()
}

func TestSecondInstance(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	engine := start(t, "engine", "--socket", socket)
	p := start(t, "gateway", "--socket", socket)
	p.waitReady()
	address := strings.TrimPrefix(p.url, "http://")
	for _, c := range []struct {
		want string
		args []string
	}{
		{"another engine is serving " + socket, []string{"engine", "--socket", socket}},
		{address + " is in use", []string{"serve", "--listen", address}},
		{strings.TrimPrefix(p.admin, "http://") + " is in use", []string{"serve", "--listen", "127.0.0.1:0", "--admin", strings.TrimPrefix(p.admin, "http://")}},
		{"another engine is serving " + socket, []string{"serve", "--socket", socket, "--listen", "127.0.0.1:0", "--admin", "off"}},
	} {
		if out, status := run(t, "", c.args...); status == 0 || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: status %d, %q; want one line with %q", c.args, status, out, c.want)
		}
	}
	select {
	case <-engine.ended:
		t.Error("the first engine ended")
	default:
	}
}

func TestPathsThatAreTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, dir} {
		if out, status := run(t, "", "engine", "--socket", path); status != supervise.ExitHopeless || !strings.Contains(out, path) {
			t.Errorf("%s: status %d, %q", path, status, out)
		}
	}
	if text, _ := os.ReadFile(file); string(text) != "keep" {
		t.Error("the file was touched")
	}
	socket := filepath.Join(dir, "s")
	dead := start(t, "engine", "--socket", socket)
	eventually(t, "the socket is there", func() bool { _, err := os.Stat(socket); return err == nil })
	dead.cmd.Process.Kill()
	<-dead.ended
	next := start(t, "engine", "--socket", socket)
	eventually(t, "the next engine serves", func() bool { return strings.Contains(next.output(), "engine ready") })
}

func TestLongSocketPaths(t *testing.T) {
	t.Parallel()
	for _, size := range []int{108, 120, 300} {
		path := "/tmp/" + strings.Repeat("a", size-5)
		for _, half := range []string{"engine", "gateway", "serve"} {
			began := time.Now()
			out, status := run(t, "", half, "--socket", path, "--listen", "127.0.0.1:0", "--admin", "off")
			if status == 0 || !strings.Contains(out, "too long") || !strings.Contains(out, path) {
				t.Errorf("%s, %d bytes: status %d after %v, %q", half, size, status, time.Since(began), out)
			}
		}
	}
}

// unservable is a model file with a key that nobody understands.
func unservable(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "strange.gguf")
	data := gguftest.TinyBuilder(gguftest.Tiny{}).Set("llama.strange_scale", float32(2)).Bytes()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnreadableModelEndsServe(t *testing.T) {
	t.Parallel()
	for path, words := range map[string]string{unservable(t): "key llama.strange_scale", "/nowhere/x.gguf": "/nowhere/x.gguf"} {
		out, status := run(t, "", "serve", "--model", path, "--listen", "127.0.0.1:0", "--admin", "off")
		if status == 0 || !strings.Contains(out, words) || strings.Contains(out, "goroutine") {
			t.Errorf("status %d, %q; want an error that names %s", status, out, words)
		}
	}
}
