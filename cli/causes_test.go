package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/capture"
)

// These tests plant a cause of slowness in a whole Forebay, and hold the sentence to
// it: on the request's page, which shows the same JSON, and in the terminal. Those
// of causes_engine_test.go plant more.

// chatOf sends a chat that is kept, and reads the answer; at is called at the first
// event.
func (p *process) chatOf(body map[string]any, at func()) (id string) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	request, _ := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(string(text)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Forebay-Capture", "1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, 1)
	io.ReadFull(response.Body, first)
	at()
	io.Copy(io.Discard, response.Body)
	return response.Header.Get("X-Request-Id")
}

// view is what the page of the request shows.
func (p *process) view(id string) *capture.View {
	p.t.Helper()
	v := new(capture.View)
	eventually(p.t, "its record is there", func() bool {
		*v = capture.View{}
		if _, err := askPage(p.admin, "/debug/requests/"+id+"?format=json", v); err != nil {
			p.t.Fatal(err)
		}
		return !v.Running
	})
	return v
}

// expectCause holds the page and the terminal to the cause.
func (p *process) expectCause(id, cause string, want ...string) *capture.View {
	p.t.Helper()
	v := p.view(id)
	out, err := exec.Command(program, "trace", "show", id, "--admin", strings.TrimPrefix(p.admin, "http://")).CombinedOutput()
	if err != nil {
		p.t.Fatalf("trace show: %v\n%s", err, out)
	}
	if v.Cause != cause {
		p.t.Errorf("the cause is %s, not %s: %s", v.Cause, cause, v.Sentence)
	}
	p.t.Log(v.Sentence)
	for _, part := range want {
		if !strings.Contains(v.Sentence, part) || !strings.Contains(string(out), part) {
			p.t.Errorf("%q lacks %q, or the terminal does:\n%s", v.Sentence, part, out)
		}
	}
	return v
}

// plant plants a cause, and again while other programs that had the processors are said
// to be it: they were the truth then. The machine must be quiet enough for it once.
func (p *process) plant(request func() (id string), cause string, want ...string) {
	p.t.Helper()
	const attempts = 20
	id := request()
	for range attempts {
		v := p.view(id)
		if v.Cause != "taken" || v.Cause == cause && !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(v.Sentence, part) }) {
			break
		}
		p.t.Log("again: ", v.Sentence)
		id = request()
	}
	p.expectCause(id, cause, want...)
}

func longChat(tokens int) map[string]any {
	return chatBody("tell me a long story", map[string]any{"stream": true, "max_tokens": tokens, "ignore_eos": true, "temperature": 1, "seed": 7})
}

// freeze stops the process for so long.
func freeze(t *testing.T, pid int, d time.Duration) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(d)
	syscall.Kill(pid, syscall.SIGCONT)
}

func TestAFrozenEngineIsTheCause(t *testing.T) {
	p := serve(t)
	engine := p.enginePid()
	p.chatOf(longChat(20), func() {})
	id := p.chatOf(longChat(400), func() { freeze(t, engine, 1500*time.Millisecond) })
	v := p.expectCause(id, "frozen", "process was frozen", "kill -CONT")
	for _, k := range v.Kernels {
		if k.MaxMS > 1000 {
			t.Errorf("%s is said to have taken %v ms", k.Class, k.MaxMS)
		}
	}
	frozen := make(chan struct{})
	syscall.Kill(engine, syscall.SIGSTOP)
	time.AfterFunc(1500*time.Millisecond, func() {
		syscall.Kill(engine, syscall.SIGCONT)
		close(frozen)
	})
	id = p.chatOf(longChat(20), func() {}) // it comes before the engine can prepare it
	<-frozen
	p.expectCause(id, "frozen", "process was frozen")
	eventually(t, "the metric has it", func() bool {
		return p.metric(`forebay_engine_lost_seconds_total{cause="frozen"}`) > 1.5 // of 3, less what others took meanwhile
	})
}

// metric is the value of one sample of the metrics page.
func (p *process) metric(sample string) float64 {
	p.t.Helper()
	response, err := http.Get(p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, sample+" "); ok {
			x, _ := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return x
		}
	}
	return 0
}

func TestTakenProcessorsAreTheCause(t *testing.T) {
	p := serve(t, "--engine.threads", "2")
	p.chatOf(longChat(300), func() {})
	script := filepath.Join(t.TempDir(), "busyloop")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nwhile :; do :; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		busy := exec.Command(script)
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		defer busy.Wait()
		defer busy.Process.Kill()
	}
	time.Sleep(200 * time.Millisecond)
	p.plant(func() string { return p.chatOf(longChat(1500), func() {}) }, "taken", "processors", "busyloop", "processors of its own")
}

func TestAPausedClassIsTheCause(t *testing.T) {
	p := serve(t)
	admin := strings.TrimPrefix(p.admin, "http://")
	if out, status := run(t, "", "queue", "pause", "interactive", "--admin", admin); status != 0 {
		t.Fatal(out)
	}
	answered := make(chan string)
	go func() { answered <- p.chatOf(chatBody("hello", map[string]any{"max_tokens": 5}), func() {}) }()
	eventually(t, "it waits", func() bool {
		out, _ := run(t, "", "queue", "--admin", admin)
		return strings.Contains(out, "  paused  ") && strings.Contains(out, "  unknown  ")
	})
	time.Sleep(300 * time.Millisecond)
	if out, status := run(t, "", "queue", "open", "interactive", "--admin", admin); status != 0 {
		t.Fatal(out)
	}
	p.expectCause(<-answered, "queue", "the operator had paused its class", "forebay queue open interactive")
}

// limitCPU puts the process under a limit of a fifth of a processor, or skips the
// test where this machine does not allow it: the facts of such a limit are fed to
// package lost and to package capture in their own tests.
func limitCPU(t *testing.T, pid int) {
	t.Helper()
	name := "forebay-test-" + strconv.Itoa(os.Getpid())
	for _, version := range []struct{ folder, file, limit string }{
		{"/sys/fs/cgroup/cpu/" + name, "cpu.cfs_quota_us", "20000"},
		{"/sys/fs/cgroup/" + name, "cpu.max", "20000 100000"},
	} {
		if os.Mkdir(version.folder, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			os.WriteFile(filepath.Join(filepath.Dir(version.folder), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
			os.Remove(version.folder)
		})
		if os.WriteFile(filepath.Join(version.folder, version.file), []byte(version.limit), 0o644) == nil &&
			os.WriteFile(filepath.Join(version.folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644) == nil {
			return
		}
	}
	t.Skip("SKIPPED: this machine lets us make no control group with a CPU limit")
}

func TestACPULimitIsTheCause(t *testing.T) {
	p := serve(t)
	p.chatOf(longChat(300), func() {})
	limitCPU(t, p.enginePid())
	p.plant(func() string { return p.chatOf(longChat(600), func() {}) }, "throttled", "CPU limit was used up", "cpu.max")
}

// TestShowOfARequestThatWasNotKept: as long as its record is there, it is explained,
// and compared with what is usual.
func TestShowOfARequestThatWasNotKept(t *testing.T) {
	p := serve(t)
	id := ""
	for range 25 {
		response, err := p.post(t.Context(), chatBody("hello", map[string]any{"max_tokens": 5, "ignore_eos": true}))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		id = response.Header.Get("X-Request-Id")
	}
	v := p.view(id)
	if !v.Unkept || len(v.Steps) == 0 || v.Usual == nil || v.Usual.Requests < 20 {
		t.Errorf("it is %+v", v)
	}
	out, status := run(t, "", "trace", "show", id, "--admin", strings.TrimPrefix(p.admin, "http://"))
	if status != 0 || !strings.Contains(out, "this is what is still in memory") || !strings.Contains(out, "for its class and size") {
		t.Errorf("trace show: %d\n%s", status, out)
	}
}
