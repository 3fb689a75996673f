//go:build cuda

package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// onGPU is a configuration that computes on the emulated driver, or on the GPU that
// FOREBAY_CUDA_DRIVER leads to.
func onGPU() Config {
	return Config{Device: DeviceConfig{Kind: "cuda", Driver: os.Getenv("FOREBAY_CUDA_DRIVER")}, BatchTokensMax: 96}
}

// TestGPUAnswersEqualReference: the loop with the model on the device gives the tokens of
// another implementation, up to its margins.
func TestGPUAnswersEqualReference(t *testing.T) {
	var short []referenceAnswer
	for _, a := range readReference(t) {
		if len(a.Answer) <= 20 && len(a.IDs) <= 40 && len(short) < 4 {
			short = append(short, a)
		}
	}
	if len(short) == 0 {
		t.Fatal("no reference answer is short enough")
	}
	newDemo(t, onGPU()).checkAnswers(t, short)
}

// TestGPUGivesOneAnswer: cold, from the cache and among neighbours a request has the same
// logits, to the bit.
func TestGPUGivesOneAnswer(t *testing.T) {
	b := newDemo(t, onGPU())
	q := question{id: "cold", tokens: prompt(1, 40), options: greedy(6)}
	b.ask(q)
	want := b.logitsBits("cold", 0)
	if len(want) == 0 {
		t.Fatal("no logits were seen")
	}
	for _, id := range []string{"warm", "among"} {
		qs := []question{{id: id, tokens: q.tokens, options: q.options}}
		for n := range 3 * min(1, len(id)-4) {
			qs = append(qs, question{id: id + "-n", tokens: prompt(uint64(50+n), 5+9*n), options: greedy(4 + n)})
		}
		a := b.askAll(qs)[0]
		if a.end.Usage.Cached == 0 {
			t.Errorf("%s: nothing was cached", id)
		}
		if !slices.Equal(b.logitsBits(id, 0), want) {
			t.Errorf("%s: the logits differ from the cold run", id)
		}
	}
}

// TestGPUKeepsStates: with few states on the device, and checkpoints among them, no answer shows the schedule.
func TestGPUKeepsStates(t *testing.T) {
	cfg := onGPU()
	cfg.Model = filepath.Join("..", "..", "shared", "conformance", "arch2", "lfm2.gguf")
	f, err := gguf.Open(cfg.Model)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("reference data %s is not there", cfg.Model)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ContextTokens, cfg.StateTokens, cfg.StateBytes, cfg.KVBytes = 256, 16, int64(5*c.StateBytes()), int64(20*c.PageBytes(kernels.KVF16, 16))
	qs := chaosQuestions(4, 6)
	for i := range qs {
		for j := range qs[i].tokens {
			qs[i].tokens[j] %= 400
		}
	}
	invariance(t, labSetup{real: true, cfg: cfg}, qs, 2)
}

// TestGPUSwap: blocks that left the GPU's pages are copied back from this machine's memory, or from
// the disk, with the same logits, to the bit.
func TestGPUSwap(t *testing.T) {
	for where, dir := range map[string]string{"memory": "", "disk": filepath.Join(t.TempDir(), "kv")} {
		cfg := onGPU()
		cfg.KVBytes, cfg.DiskCache = 7*int64(newLab(t, labSetup{real: true}).info.PageBytes), dir
		b := newDemo(t, cfg)
		b.disk.patience, b.disk.readTime = patience, func() time.Duration { return 0 } // this machine may be busy
		var want []uint64
		for _, id := range []string{"cold", "other", "warm"} {
			a := b.ask(question{id: id, tokens: prompt(uint64(len(id)%5), 70), options: greedy(3)}) // cold and warm are the same
			for deadline := time.Now().Add(patience); b.State().Disk.Written < 4 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			bits := b.logitsBits(id, 0)
			if id == "cold" {
				want = bits
			}
			if id == "warm" && (!slices.Equal(bits, want) || a.end.Usage.Cached != 64 || b.State().Disk.Read == 0) {
				t.Errorf("%s: other logits, or they were computed: %+v %+v", where, a.end.Usage, b.State().Disk)
			}
		}
	}
}

// TestGPUSaysItsPower: what NVML says is in the State.
func TestGPUSaysItsPower(t *testing.T) {
	cfg := onGPU()
	cfg.Device.NVML = cfg.Device.Driver // the emulated driver has both
	b := newDemo(t, cfg)
	for deadline := time.Now().Add(patience); b.State().GPU.Milliwatts != 123000; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", b.State().GPU)
		}
		b.inbox.kick()
	}
}

// TestGPUTimesKernels: a timed step has a time for each class, and others have none.
func TestGPUTimesKernels(t *testing.T) {
	cfg := onGPU()
	cfg.Device.TimingEvery = 2
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	p, err := load(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	m := p.model.(*model.Model)
	timer := new(model.Timer)
	m.SetTimer(timer)
	chunk := []model.Chunk{{Tokens: []int32{1, 2, 3}, Pages: []int32{0}, Logits: 1}}
	for step := range uint64(4) {
		timer.Start(step, wire.Monotonic())
		m.ForwardUnless(nil, chunk)
		timer.Stop(wire.Monotonic())
		layers := uint32(len(m.Config().Layers))
		want := map[model.KernelClass]uint32{
			model.KernelEmbed: 1, model.KernelQKV: layers, model.KernelAttentionPrefill: layers, model.KernelOutput: layers, model.KernelLogits: 1,
		}
		for class, n := range want {
			if step%2 == 1 {
				n = 0
			}
			if got := timer.Kernels[class]; got.Count != n || (got.Total > 0) != (n > 0) {
				t.Errorf("step %d: %v is %+v, want %d launches", step, class, got, n)
			}
		}
	}
}

const faultVar = "FOREBAY_TEST_GPU_FAULT"

// TestGPUFaultEndsTheEngine: a kernel that faults reaches Config.Fault, with its name where
// kernels are checked. It needs a process of its own, since a driver with a fault stays so.
func TestGPUFaultEndsTheEngine(t *testing.T) {
	if os.Getenv(faultVar) != "" {
		faultAndReport()
	}
	for kernel, want := range map[string]string{"add_norm": "kernel add_norm of norm_rope in layer 0", "sample_pick": "sample 1 tokens: kernel sample_pick"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestGPUFaultEndsTheEngine$")
		cmd.Env = append(os.Environ(), faultVar+"=1", "FOREBAY_EMU_FAULT="+kernel)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(string(out), want) || !strings.Contains(string(out), "IllegalAddress") {
			t.Errorf("%s: %v:\n%s", kernel, err, out)
		}
	}
}

// faultAndReport runs until the fault, and ends with status 3.
func faultAndReport() {
	cfg := onGPU()
	cfg.Device.Checked, cfg.SelfBenchmarkOff, cfg.CostFile = true, true, "none"
	cfg.Fault = func(err error) {
		os.Stderr.WriteString(err.Error())
		os.Exit(3)
	}
	e, err := New(cfg)
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(4)
	}
	p, failed := e.Prepare(context.Background(), &wire.Request{ID: "q", Tokens: []int32{1, 2, 3}})
	if failed != nil {
		os.Stderr.WriteString(failed.Error())
		os.Exit(5)
	}
	e.Generate(&wire.Generation{ID: "q", Prompt: p, Options: wire.Options{N: 1, MaxTokens: 4}, Notify: make(chan struct{}, 1)})
	time.Sleep(20 * time.Second)
	os.Exit(6)
}

// TestGPULeavesOtherModelsToTheCPU: auto leaves to the CPU what the GPU refuses, and says why;
// cuda does not.
func TestGPULeavesOtherModelsToTheCPU(t *testing.T) {
	path := filepath.Join("..", "..", "shared", "conformance", "arch2", "mamba2.gguf")
	f, err := gguf.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("reference data %s is not there", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for kind, want := range map[string]string{"auto": "cpu, since architecture mamba2 is not computed on the GPU", "cuda": "CUDA device 0, "} {
		cfg := onGPU()
		cfg.Device.Kind = kind
		if err := cfg.fill(); err != nil {
			t.Fatal(err)
		}
		var p loaded
		if err := p.openDevice(&cfg, f); err != nil || !strings.HasPrefix(p.info.Device, want) || (p.gpu != nil) != (kind == "cuda") {
			t.Errorf("%s: %v, %q, a GPU %v; want %q", kind, err, p.info.Device, p.gpu != nil, want)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}
