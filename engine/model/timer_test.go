package model

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/kernels"
)

var clockOrigin = time.Now()

// nanoseconds is the clock of a caller of the Timer.
func nanoseconds() int64 { return int64(time.Since(clockOrigin)) }

func TestTimerCountsEveryPhase(t *testing.T) {
	for _, name := range []string{"llama", "gpt-oss", "gemma3"} {
		f := familyFile(t, name, kernels.Q8_0)
		m := load(t, f, kernels.Best(), newTeam(t, 2), Options{})
		pages := firstPages(8)
		chunks := []Chunk{
			{Tokens: []int32{1, 2, 3}, Pages: pages[:4]},
			{Tokens: []int32{4}, Pages: pages[4:5], Logits: 1, Decode: true},
		}
		want := slices.Clone(m.Forward(chunks))
		timer := Timer{Launches: make([]Launch, 0, 1000)}
		m.SetTimer(&timer)
		if m.Forward(chunks); timer.Kernels != [KernelClassCount]KernelTime{} || len(timer.Launches) > 0 {
			t.Errorf("%s: a timer that is off counted %+v", name, timer)
		}
		before := nanoseconds()
		timer.Start(5, before)
		if got := m.Forward(chunks); !slices.Equal(got, want) {
			t.Errorf("%s: the timer changes the logits", name)
		}
		ended := nanoseconds()
		timer.Stop(ended)
		took := time.Duration(ended - before)
		layers := uint32(len(m.config.Layers))
		counts := map[KernelClass]uint32{KernelEmbed: 1, KernelQKV: layers, KernelOutput: layers, KernelMLP: layers,
			KernelNormRope: 3*layers + 1, KernelAttentionDecode: layers, KernelAttentionPrefill: layers - 1, KernelLogits: 1}
		sum, launches := time.Duration(0), uint32(0)
		for class, k := range timer.Kernels {
			if k.Count != counts[KernelClass(class)] || k.Max > k.Total || k.Total > time.Duration(k.Count)*(k.Max+1) { // both are rounded down
				t.Errorf("%s: %v: %+v, want %d launches", name, KernelClass(class), k, counts[KernelClass(class)])
			}
			sum += k.Total
			launches += k.Count
		}
		last := timer.Launches[len(timer.Launches)-1]
		if sum > took || int(launches) != len(timer.Launches) || timer.Missing != 0 || last.Class != KernelLogits || last.Layer != -1 || last.Step != 5 {
			t.Errorf("%s: %v of %v, %d launches of %d, the last %+v", name, sum, took, launches, len(timer.Launches), last)
		}
	}
}

func TestTimerDividesAttentionByKeys(t *testing.T) {
	for _, c := range []struct{ keys, want attentionKeys }{
		{attentionKeys{prefill: 5}, attentionKeys{prefill: 100}},
		{attentionKeys{decode: 5}, attentionKeys{decode: 100}},
		{attentionKeys{prefill: 30, decode: 10}, attentionKeys{prefill: 75, decode: 25}},
	} {
		var timer Timer
		timer.Start(1, nanoseconds())
		time.Sleep(time.Millisecond)
		timer.lapAttention(0, c.keys)
		timer.Stop(nanoseconds())
		prefill, decode := timer.Kernels[KernelAttentionPrefill].Total, timer.Kernels[KernelAttentionDecode].Total
		whole := prefill + decode
		if whole < time.Millisecond/2 || prefill < whole*time.Duration(c.want.prefill-1)/100 || decode < whole*time.Duration(c.want.decode-1)/100 {
			t.Errorf("%+v: prompts %v, decode %v", c.keys, prefill, decode)
		}
	}
}

func TestTimerKeepsToItsRoom(t *testing.T) {
	timer := Timer{Launches: make([]Launch, 0, 3)}
	timer.Start(1, 100)
	for range 5 {
		timer.Lap(KernelMLP, 2)
	}
	timer.Stop(1100)
	if len(timer.Launches) != 3 || timer.Missing != 2 || timer.Kernels[KernelMLP].Count != 5 || timer.Launches[0].Begin != 100 || timer.Launches[2].End > 1100 || timer.Kernels[KernelMLP].Total > 1000 {
		t.Errorf("%+v", timer)
	}
}

func TestForwardWithTimerAllocatesNothing(t *testing.T) {
	m := load(t, parseTiny(t, odd), kernels.Best(), newTeam(t, 2), Options{})
	timer := Timer{Launches: make([]Launch, 0, 100)}
	m.SetTimer(&timer)
	chunks := []Chunk{{Tokens: randomTokens(rand.New(rand.NewPCG(1, 2)), 30, odd.Vocab), Pages: firstPages(m.Options().Pages), Logits: 1}}
	if n := testing.AllocsPerRun(20, func() { timer.Start(1, 1); m.Forward(chunks); timer.Launches = timer.Launches[:0]; timer.Stop(2) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
