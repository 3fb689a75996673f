//go:build cuda

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func init() { buildFlags = []string{"-tags", "cuda"} }

// TestGPUFaultInTheMiddleOfAnswers: a kernel that faults once ends the requests that run with an
// error that says so, the engine starts again with its kernels checked, and answers as before; a
// fault that comes again is named to clients, in the metrics and in the request's trace.
func TestGPUFaultInTheMiddleOfAnswers(t *testing.T) {
	fault := filepath.Join(t.TempDir(), "fault")
	p := prepare(t, "serve", "--engine.device.kind", "cuda", "--engine.self_benchmark_off", "--engine.cost_file", "none")
	p.cmd.Env = append(p.cmd.Env, "FOREBAY_EMU_FAULT_FILE="+fault)
	p.begin()
	p.waitReady()
	// A class that promises no first token: the emulated driver is slow.
	short := chatBody("Hello!", map[string]any{"max_tokens": 4, "ignore_eos": true, "service_tier": "flex"})
	endless := map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 1900, "service_tier": "flex"}
	before := p.ask(short)
	if before.status != http.StatusOK || before.text == "" {
		t.Fatalf("before the fault: %+v", before)
	}
	for _, step := range []struct{ kernel, label, says string }{
		{"activate", "unknown", "the GPU failed: a step of "},
		{"add_norm", "add_norm", "kernel add_norm of norm_rope in layer 0"},
	} {
		engine := p.enginePid()
		streams := []<-chan answer{p.stream(chatBody("Tell me a story about a fox.", endless)), p.stream(chatBody("Tell me a story about a hen.", endless))}
		id := p.chatOf(chatBody("Tell me a story.", endless), func() { // it streams when the fault comes
			if err := os.WriteFile(fault, []byte(step.kernel), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		for i, s := range streams {
			if a := <-s; a.done || a.errors != 1 || a.text == "" || !strings.Contains(a.raw, `"device_failed"`) || !strings.Contains(a.raw, step.says) {
				t.Errorf("%s: stream %d: done %v, %d errors, %s", step.kernel, i, a.done, a.errors, a.raw[max(0, len(a.raw)-600):])
			}
		}
		v := p.view(id)
		if named := step.label != "unknown"; v.Error != "device_failed" || v.Outcome != "engine_unavailable" || named && v.Kernel != step.label ||
			strings.Contains(v.Sentence, "The GPU failed in kernel "+step.kernel) != named {
			t.Errorf("the trace says %q %q %q: %s", v.Outcome, v.Error, v.Kernel, v.Sentence)
		}
		p.nextEngine(engine)
		p.waitReady()
		if after := p.ask(short); after.status != http.StatusOK || after.text != before.text {
			t.Errorf("after the fault: %+v, want the text %q", after, before.text)
		}
		if n := p.metric(`forebay_device_failures_total{kernel="` + step.label + `"}`); n != 1 {
			t.Errorf("%g failures in kernel %s", n, step.label)
		}
	}
	for _, want := range []string{"the engine is lost", "the engine ended (its GPU failed; the log says where); it starts again", "every kernel is waited for at first", "the engine is back"} {
		if !strings.Contains(p.output(), want) {
			t.Errorf("the log has no %q", want)
		}
	}
	p.waitIdle()
}
