package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/demo"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// faultyModel is a model on a device that fails at a step of two sequences.
type faultyModel struct {
	computer
	left int // such steps before that
}

func (m *faultyModel) Forward(chunks []model.Chunk) []float32 {
	if len(chunks) == 2 {
		m.left--
	}
	if m.left < 0 {
		panic(&model.DeviceFault{Err: &model.KernelError{Kernel: "add_norm", Where: " of norm_rope in layer 3", Err: errors.New("illegal address")}})
	}
	return m.computer.Forward(chunks)
}

// TestDeviceFaultEndsAllGenerations: when the device fails in the middle of answers, all of them, those
// that wait, and what comes later get an error that names the kernel, and who runs the engine is told once.
func TestDeviceFaultEndsAllGenerations(t *testing.T) {
	f, err := gguf.Parse(demo.Name, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	const pages = 256
	cfg := Config{SequencesMax: 2}
	if err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 2)
	b := newLab(t, labSetup{
		cfg: cfg, pages: pages, model: &faultyModel{newPagedModel(tok.Size(), cfg.PageTokens, pages), 5},
		onFault: func(err error) { told <- err },
	})
	var qs []question
	for i := range 4 { // of which two wait, and none could end before the fault
		qs = append(qs, question{id: string(rune('a' + i)), tokens: prompt(uint64(i), 20), options: greedy(1000)})
	}
	begun := 0
	for i, a := range b.askAll(qs) {
		e := a.end.Err
		if e == nil || e.Kind != wire.DeviceFailed || e.Kernel != "add_norm" || e.RetryAfter == 0 || !strings.Contains(e.Message, "kernel add_norm of norm_rope in layer 3: illegal address") {
			t.Errorf("question %d: %v", i, e)
		}
		if a.counts[0] > 0 {
			begun++
		}
	}
	if begun != 2 {
		t.Errorf("%d answers have tokens from before the fault, of two that had begun", begun)
	}
	<-b.looped
	var fault *model.DeviceFault
	if len(told) != 1 || !errors.As(<-told, &fault) || fault.Kernel() != "add_norm" {
		t.Errorf("told %v", fault)
	}
	if s := b.State(); s.Err == nil || s.Err.Kind != wire.DeviceFailed || s.Running+s.Waiting+s.PagesUsed > 0 {
		t.Errorf("the state after it: %+v", s)
	}
	var e *wire.Error
	if _, err := b.Prepare(context.Background(), &wire.Request{ID: "late", Tokens: prompt(9, 5)}); err != nil && (!errors.As(err, &e) || e.Kind != wire.DeviceFailed) {
		t.Errorf("a later prompt: %v", err)
	}
	if a := b.ask(question{id: "late", tokens: prompt(9, 5), options: greedy(1)}); a.end.Err == nil || a.end.Err.Kind != wire.DeviceFailed {
		t.Errorf("a later question: %v", a.end.Err)
	}
}
