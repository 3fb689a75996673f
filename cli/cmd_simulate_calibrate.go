package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/forebay-io/forebay/bench/sim"
	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/wire"
)

// calibrateRounds is the load of a calibration: how many generations run at once
// in each round. Prompts have up to calibratePromptMax tokens and answers up to
// calibrateOutputMax. Whole rounds repeat for calibrateTime.
var calibrateRounds = []int{1, 2, 4, 8, 16, 32}

const (
	calibrateTime      = 20 * time.Second
	calibratePromptMax = 1024
	calibrateOutputMax = 64
)

// q90 is the 90 % quantile of the normal distribution.
const q90 = 1.2816

// calibrate runs a model under changing load and writes the learned cost of
// steps to output, or prints it if output is empty. It reports the error of the
// prediction on standard error.
func (c *console) calibrate(model, output string, limit time.Duration) error {
	var cfg engine.Config
	conf.Fill(&cfg)
	cfg.Model = model
	e, err := engine.New(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	rnd := rand.New(rand.NewPCG(1, 1))
	for began, i := time.Now(), 0; i < len(calibrateRounds) || time.Since(began) < limit; i++ {
		if err := generateTogether(e, rnd, calibrateRounds[i%len(calibrateRounds)]); err != nil {
			return err
		}
	}
	s := e.State()
	fmt.Fprintf(c.err, "forebay: %d steps of %s; they took %.2f times what was predicted in the median, and %.2f times at 90 %%\n", s.Step, s.Model.ID, s.RatioMedian, s.RatioHigh)
	text, err := json.MarshalIndent(engineFile(s, &cfg), "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if output != "" {
		return os.WriteFile(output, text, 0o644)
	}
	_, err = c.out.Write(text)
	return err
}

// engineFile converts the state of a real engine to the simulator's engine.
func engineFile(s *wire.State, cfg *engine.Config) *sim.Engine {
	const ms = 1e6
	out := sim.DefaultEngine()
	out.Name = s.Model.ID
	out.BaseMS, out.DecodeRowMS, out.DecodeContextMS = s.Cost.Base/ms, s.Cost.DecodeRow/ms, s.Cost.DecodeContext/ms
	out.PrefillTokenMS, out.PrefillContextMS = s.Cost.PrefillToken/ms, s.Cost.PrefillContext/ms
	out.KVTokens, out.SequencesMax, out.StepTokensMax = s.PagesTotal*s.Model.PageTokens, cfg.SequencesMax, s.Room.TokensMax
	out.StepBudgetMS, out.LongStretch = float64(cfg.StepBudget)/ms, cfg.LongStretch
	out.BackgroundStretch, out.BatchStretch = cfg.BackgroundStretch, cfg.BatchStretch
	out.StallsMinute = 0 // what there were is in the noise
	out.Noise = max(0, math.Log(s.RatioHigh/s.RatioMedian)/q90)
	return out
}

// generateTogether runs n generations of random tokens at once until all end.
func generateTogether(e *engine.Engine, rnd *rand.Rand, n int) error {
	m := &e.State().Model
	notify := make(chan struct{}, 1)
	streams := make([]*wire.Stream, n)
	for i := range streams {
		room := min(calibratePromptMax+calibrateOutputMax, m.ContextTokens)
		tokens := make([]int32, 1+rnd.IntN(max(1, room-calibrateOutputMax)))
		for k := range tokens {
			tokens[k] = int32(rnd.IntN(m.VocabTokens))
		}
		options := wire.Options{N: 1, MaxTokens: max(1, min(calibrateOutputMax, room-len(tokens))), IgnoreEOS: true}
		prompt, err := e.Prepare(context.Background(), &wire.Request{Tokens: tokens})
		if err != nil {
			return err
		}
		streams[i] = e.Generate(&wire.Generation{Prompt: prompt, Options: options, Notify: notify})
		defer streams[i].Close()
	}
	var events []wire.Event
	for left := n; left > 0; {
		<-notify
		for _, stream := range streams {
			events = stream.Take(events[:0])
			for i := range events {
				end := events[i].End
				if end == nil {
					continue
				}
				if end.Err != nil {
					return end.Err
				}
				left--
			}
		}
	}
	return nil
}
