package wire

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// Each range at its ends and beyond, against a model and against none.
func TestOptionsCheck(t *testing.T) {
	m := &Model{VocabTokens: 10, ChoicesMax: 4}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	bias := func(id int32, b float32) Options { return Options{LogitBias: []LogitBias{{id, b}}} }
	for param, c := range map[string]struct{ good, bad []Options }{
		"n":                  {[]Options{{N: 4}}, []Options{{N: -1}, {N: 5}}},
		"max_tokens":         {[]Options{{}, {MaxTokens: math.MaxInt32}}, []Options{{MaxTokens: -1}, {MaxTokens: math.MaxInt32 + 1}}},
		"top_k":              {[]Options{{TopK: math.MaxInt32}}, []Options{{TopK: -1}}},
		"top_logprobs":       {[]Options{{TopLogprobs: 10}}, []Options{{TopLogprobs: -1}, {TopLogprobs: 11}}},
		"temperature":        {[]Options{{Temperature: 2}}, []Options{{Temperature: -.1}, {Temperature: 2.1}, {Temperature: nan}, {Temperature: inf}}},
		"top_p":              {[]Options{{TopP: 1}}, []Options{{TopP: -.1}, {TopP: 1.1}, {TopP: nan}}},
		"min_p":              {[]Options{{MinP: 1}}, []Options{{MinP: -.1}, {MinP: 1.1}, {MinP: nan}}},
		"repetition_penalty": {[]Options{{RepetitionPenalty: .01}, {RepetitionPenalty: 100}}, []Options{{RepetitionPenalty: .001}, {RepetitionPenalty: 101}, {RepetitionPenalty: nan}}},
		"presence_penalty":   {[]Options{{PresencePenalty: -2}, {PresencePenalty: 2}}, []Options{{PresencePenalty: -2.1}, {PresencePenalty: 2.1}, {PresencePenalty: nan}}},
		"frequency_penalty":  {[]Options{{FrequencyPenalty: -2}, {FrequencyPenalty: 2}}, []Options{{FrequencyPenalty: -2.1}, {FrequencyPenalty: 2.1}, {FrequencyPenalty: nan}}},
		"repeat_last_n":      {[]Options{{RepeatLast: 64}}, []Options{{RepeatLast: -1}}},
		"top_n_sigma":        {[]Options{{TopNSigma: 2}}, []Options{{TopNSigma: -1}, {TopNSigma: nan}}},
		"mirostat_tau":       {[]Options{{MirostatTau: 5}}, []Options{{MirostatTau: -1}, {MirostatTau: nan}}},
		"mirostat_eta":       {[]Options{{MirostatEta: 1}}, []Options{{MirostatEta: 1.1}, {MirostatEta: nan}}},
		"dry_multiplier":     {[]Options{{DRY: DRY{Multiplier: .8}}}, []Options{{DRY: DRY{Multiplier: -1}}, {DRY: DRY{Multiplier: inf}}}},
		"dry_base":           {[]Options{{DRY: DRY{Base: 1}}}, []Options{{DRY: DRY{Base: .5}}, {DRY: DRY{Base: nan}}}},
		"dry_allowed_length": {[]Options{{DRY: DRY{Length: 2}}}, []Options{{DRY: DRY{Length: -1}}}},
		"dry_penalty_last_n": {[]Options{{DRY: DRY{Last: 2}}}, []Options{{DRY: DRY{Last: -1}}}},
		"dry_sequence_breakers": {[]Options{{DRY: DRY{Breakers: []string{"x"}}}},
			[]Options{{DRY: DRY{Breakers: []string{""}}}, {DRY: DRY{Breakers: slices.Repeat([]string{"x"}, BreakersMax+1)}}, {DRY: DRY{Breakers: []string{strings.Repeat("x", BreakerBytesMax+1)}}}}},
		"stop": {[]Options{{Stop: slices.Repeat([]string{"x"}, StopsMax)}, {Stop: []string{strings.Repeat("x", StopBytesMax)}}},
			[]Options{{Stop: slices.Repeat([]string{"x"}, StopsMax+1)}, {Stop: []string{""}}, {Stop: []string{strings.Repeat("x", StopBytesMax+1)}}}},
		"logit_bias": {[]Options{bias(9, 100), bias(0, -100)}, []Options{bias(-1, 0), bias(10, 0), bias(0, 101), bias(0, nan)}},
	} {
		for _, o := range c.good {
			o.N = max(1, o.N)
			if err := o.Check(m); err != nil {
				t.Errorf("%s, %+v: %v", param, o, err)
			}
		}
		for _, o := range c.bad {
			if o.N == 0 {
				o.N = 1
			}
			if err := o.Check(m); err == nil || err.Kind != Invalid || err.Param != param {
				t.Errorf("%s, %+v: %v", param, o, err)
			}
		}
	}
	free := Options{N: 5, TopLogprobs: 20, LogitBias: []LogitBias{{Token: 10}}}
	if err := free.Check(&Model{}); err != nil {
		t.Errorf("a model with no limits: %v", err)
	}
	for _, o := range []Options{{}, {N: choicesMax + 1}, {N: 1, TopLogprobs: 21}} {
		if o.Check(&Model{}) == nil || o.Check(&Model{ChoicesMax: math.MaxInt, VocabTokens: math.MaxInt32}) == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
