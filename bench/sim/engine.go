package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/forebay-io/forebay/engine/step"
	"github.com/forebay-io/forebay/internal/cost"
)

// Engine is the machine that is simulated, as the file of --engine holds it.
type Engine struct {
	Name string `json:"name"`

	// A step's duration: base + prefill_token·tokens + prefill_context·(tokens ×
	// tokens before them) + decode_row·rows + decode_context·(their contexts).
	BaseMS           float64 `json:"base_ms"`
	PrefillTokenMS   float64 `json:"prefill_token_ms"`
	PrefillContextMS float64 `json:"prefill_context_ms"`
	DecodeRowMS      float64 `json:"decode_row_ms"`
	DecodeContextMS  float64 `json:"decode_context_ms"`

	KVTokens      int     `json:"kv_tokens"`
	SequencesMax  int     `json:"sequences_max"`
	StepTokensMax int     `json:"step_tokens_max"`
	StepBudgetMS  float64 `json:"step_budget_ms"` // of a step with prefill while interactive rows decode
	// LongStretch is what a long prompt may add to a step beside interactive decode
	// rows, in units of their time. BackgroundStretch and BatchStretch are what
	// offline and batch work may add, in units of the interactive part's time.
	LongStretch       float64 `json:"long_stretch"`
	BackgroundStretch float64 `json:"background_stretch"`
	BatchStretch      float64 `json:"batch_stretch"`
	// PrefixTokens is how many tokens of finished prompts are kept for reuse.
	PrefixTokens int `json:"prefix_tokens"`

	// ArrivalMS is what each request that arrives adds to the step that runs, also if
	// it is refused: where gateway and engine share the processors, reading and
	// tokenizing it takes time from computing.
	ArrivalMS float64 `json:"arrival_ms"`
	// WayInMS is the time from sending a request until the scheduler has it, WayOutMS
	// from the end of a step until the client has its token.
	WayInMS  float64 `json:"way_in_ms"`
	WayOutMS float64 `json:"way_out_ms"`

	// Noise is the log-normal deviation of a step's duration, NoiseMemory the share of
	// its variance that lasts for about noiseLasts. A stall of StallMS happens
	// StallsMinute times in a minute.
	Noise        float64 `json:"noise"`
	NoiseMemory  float64 `json:"noise_memory"`
	StallMS      float64 `json:"stall_ms"`
	StallsMinute float64 `json:"stalls_a_minute"`
	// CostNoise is the log-normal deviation of a request's own cost, which no policy
	// knows.
	CostNoise float64 `json:"cost_noise"`
}

// DefaultEngine is shaped like an 8B model on an A100.
func DefaultEngine() *Engine {
	return &Engine{
		Name:   "8B on an A100",
		BaseMS: 8, PrefillTokenMS: 0.10, PrefillContextMS: 3.4e-6, DecodeRowMS: 0.02, DecodeContextMS: 6.4e-5,
		KVTokens: 430_000, SequencesMax: 128, StepTokensMax: 512, StepBudgetMS: 100, LongStretch: 4, BackgroundStretch: 0.2, BatchStretch: 1,
		Noise: 0.05, StallMS: 200, StallsMinute: 1,
	}
}

// engines are the named ones.
var engines = map[string]func() *Engine{
	"a100-8b":  DefaultEngine,
	"cpu":      cpuEngine,
	"slow-cpu": slowCPUEngine,
}

// Engines are the names of the engines that NamedEngine gives.
func Engines() []string { return slices.Sorted(maps.Keys(engines)) }

// NamedEngine returns an engine by its name; nil if there is none.
func NamedEngine(name string) *Engine {
	if of := engines[name]; of != nil {
		return of()
	}
	return nil
}

// cpuEngine is as calibrated of SmolLM2 135M on two cores, gateway and clients on the
// same ones: a decode row costs more than a token of a prompt.
func cpuEngine() *Engine {
	return &Engine{
		Name:   "SmolLM2 135M on two CPU cores",
		BaseMS: 3, PrefillTokenMS: 0.28, PrefillContextMS: 1.5e-4, DecodeRowMS: 0.4, DecodeContextMS: 9e-4,
		KVTokens: 46_592, SequencesMax: 64, StepTokensMax: 512, StepBudgetMS: 50, LongStretch: 1, BackgroundStretch: 0.2, BatchStretch: 1,
		ArrivalMS: 0.5, WayInMS: 0.7, WayOutMS: 0.3, Noise: 0.18, NoiseMemory: 0.3,
	}
}

// slowCPUEngine takes five times as long for all that it computes. Its budget for a
// step is the same, and 20 decode rows spend nearly all of that.
func slowCPUEngine() *Engine {
	e := cpuEngine()
	e.Name = "a CPU five times slower"
	for _, ms := range []*float64{&e.BaseMS, &e.PrefillTokenMS, &e.PrefillContextMS, &e.DecodeRowMS, &e.DecodeContextMS} {
		*ms *= 5
	}
	return e
}

// ReadEngine reads an engine from JSON; fields that are left out are as in
// DefaultEngine.
func ReadEngine(r io.Reader) (*Engine, error) {
	e := DefaultEngine()
	d := json.NewDecoder(io.LimitReader(r, 1<<20))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("there is more than one JSON object")
	}
	return e, e.check()
}

const (
	stallMSMax      = 1e5
	stallsMinuteMax = 1000
)

func (e *Engine) check() error {
	for _, f := range []struct {
		key         string
		value       float64
		least, most float64
	}{
		{"base_ms", e.BaseMS, 0, 1e5}, {"prefill_token_ms", e.PrefillTokenMS, 0, 1e5}, {"prefill_context_ms", e.PrefillContextMS, 0, 100},
		{"decode_row_ms", e.DecodeRowMS, 0, 1e5}, {"decode_context_ms", e.DecodeContextMS, 0, 1e3},
		{"kv_tokens", float64(e.KVTokens), 1, 1e10}, {"sequences_max", float64(e.SequencesMax), 1, 65536},
		{"step_budget_ms", e.StepBudgetMS, 1, 1e5}, {"long_stretch", e.LongStretch, 0.01, 100}, {"background_stretch", e.BackgroundStretch, 0.001, 100}, {"batch_stretch", e.BatchStretch, 0.001, 100},
		{"step_tokens_max", float64(e.StepTokensMax), 1, 1e6}, {"prefix_tokens", float64(e.PrefixTokens), 0, 1e10},
		{"arrival_ms", e.ArrivalMS, 0, 1e3}, {"way_in_ms", e.WayInMS, 0, 1e5}, {"way_out_ms", e.WayOutMS, 0, 1e5},
		{"noise", e.Noise, 0, 2}, {"noise_memory", e.NoiseMemory, 0, 1}, {"stall_ms", e.StallMS, 0, stallMSMax}, {"stalls_a_minute", e.StallsMinute, 0, stallsMinuteMax}, {"cost_noise", e.CostNoise, 0, 2},
	} {
		if math.IsNaN(f.value) || f.value < f.least || f.value > f.most {
			return fmt.Errorf("%s is %g; allowed is %g to %g", f.key, f.value, f.least, f.most)
		}
	}
	if e.BaseMS+e.PrefillTokenMS <= 0 || e.BaseMS+e.DecodeRowMS <= 0 {
		return errors.New("base_ms, prefill_token_ms and decode_row_ms say that work takes no time")
	}
	return nil
}

// cost is the model of the engine's steps.
func (e *Engine) cost() cost.Cost {
	const ms = 1e6
	return cost.Cost{
		Base: e.BaseMS * ms, PrefillToken: e.PrefillTokenMS * ms, PrefillContext: e.PrefillContextMS * ms,
		DecodeRow: e.DecodeRowMS * ms, DecodeContext: e.DecodeContextMS * ms,
	}
}

// wayIn and wayOut are WayInMS and WayOutMS.
func (e *Engine) wayIn() time.Duration  { return time.Duration(e.WayInMS * 1e6) }
func (e *Engine) wayOut() time.Duration { return time.Duration(e.WayOutMS * 1e6) }

// limits are the limits by which the engine composes its steps; what the file does
// not say has the engine's default.
func (e *Engine) limits() step.Limits {
	budget := time.Duration(e.StepBudgetMS * 1e6)
	return step.Limits{
		Room:    cost.Room{Budget: budget, TokensMin: 16, TokensMax: e.StepTokensMax},
		RowsMax: e.SequencesMax, BackgroundBudget: budget / 2,
		Stretch: e.BackgroundStretch, BatchStretch: e.BatchStretch, Floor: 0.05, LongShare: 0.25, LongStretch: e.LongStretch,
	}
}

// quiet is the engine without noise and stalls.
func (e *Engine) quiet() *Engine {
	q := *e
	q.Noise, q.StallsMinute, q.CostNoise = 0, 0, 0
	return &q
}

// work is the engine time in milliseconds, in full steps, of the mean request of a
// kind.
func (e *Engine) work(prompt, promptSCV, output float64) float64 {
	square := prompt * prompt * (1 + promptSCV)
	return prompt*(e.PrefillTokenMS+e.BaseMS/float64(e.StepTokensMax)) + e.PrefillContextMS*square/2 +
		output*(e.DecodeRowMS+e.DecodeContextMS*prompt)
}
