//go:build cuda

package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
)

// countedDrawer counts how a step's tokens were found.
type countedDrawer struct {
	drawer
	found map[model.DeviceFound]int
	rows  int // that were copied
}

func (c *countedDrawer) Sample(draws []model.DeviceDraw, vocab int) {
	c.drawer.Sample(draws, vocab)
	for i := range draws {
		c.found[draws[i].Found]++
	}
}

func (c *countedDrawer) Row(row int) []float32 {
	c.rows++
	return c.drawer.Row(row)
}

// drawnQuestions have options of every kind.
func drawnQuestions() (qs []question) {
	for i, o := range []wire.Options{
		{},
		{Logprobs: true, TopLogprobs: 4},
		{Temperature: 1, N: 3, Logprobs: true},
		{Temperature: 0.9, TopP: 0.9, Logprobs: true, TopLogprobs: 2},
		{Temperature: 0.7, TopK: 20, MinP: 0.05, RepetitionPenalty: 1.2, FrequencyPenalty: 0.3},
		{Temperature: 1, TypicalP: 0.8},
		{Temperature: 1, TopP: 0.8, LogitBias: []wire.LogitBias{{Token: 40, Bias: 3}, {Token: 41, Bias: -100}}, PresencePenalty: 0.5},
		{Temperature: 1, AllowedTokens: []int32{30, 40, 50, 60, 70, 80}, BadWords: []string{"a"}},
		{Temperature: 1, Grammar: schemaOf(`{"type":"array","items":{"enum":["left","right"]},"minItems":2,"maxItems":2}`), Logprobs: true, MinTokens: 2},
		{PromptLogprobs: true, Temperature: 1},
	} {
		o.MaxTokens, o.Seed, o.IgnoreEOS = 6, uint64(i), o.Grammar == nil
		qs = append(qs, question{id: fmt.Sprint("drawn-", i), tokens: prompt(uint64(70+i), 6+i), options: o})
	}
	return qs
}

// TestGPUSamplesAsThisSide: tokens that are found on the device are those of the sampler on
// this side, with their log-probabilities, whatever is asked for and whoever is beside.
func TestGPUSamplesAsThisSide(t *testing.T) {
	qs := drawnQuestions()
	want := newDemo(t, onGPU()).askAll(qs)

	drawer := &countedDrawer{found: map[model.DeviceFound]int{}}
	b := newLab(t, labSetup{real: true, cfg: onGPU(), onTurn: func(b *lab) {
		if d := &b.loop.drawing; d.model != drawer {
			drawer.drawer, d.model = d.model, drawer
		}
	}})
	b.unseen = true
	for i, got := range b.askAll(qs) {
		if got.end.Err != nil || !slices.Equal(got.texts, want[i].texts) || !slices.Equal(got.finishes, want[i].finishes) {
			t.Errorf("%+v\n%q, %v; this side %q", qs[i].options, got.texts, got.end.Err, want[i].texts)
			continue
		}
		for c := range got.logprobs {
			if !slices.EqualFunc(got.logprobs[c], want[i].logprobs[c], sameLogprob) {
				t.Errorf("%+v\nlog-probabilities %+v; this side %+v", qs[i].options, got.logprobs[c], want[i].logprobs[c])
			}
		}
	}
	if n := drawer.found[model.Found]; n < 40 || drawer.rows > n/4 {
		t.Errorf("%v tokens were found on the device, and %d rows of logits copied", drawer.found, drawer.rows)
	}
}

func sameLogprob(a, b wire.TokenLogprob) bool {
	near := func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-4 }
	return a.ID == b.ID && near(a.Logprob, b.Logprob) && slices.EqualFunc(a.Top, b.Top, func(a, b wire.TopLogprob) bool {
		return a.ID == b.ID && near(a.Logprob, b.Logprob)
	})
}
