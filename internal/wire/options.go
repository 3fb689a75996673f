package wire

import (
	"cmp"
	"math"
)

// What a client may ask for. Check has the range of every option, so that the
// gateway, which answers the client, and the engine, which trusts no peer, refuse
// the same values.
const (
	// StopsMax bounds Options.Stop, and StopBytesMax each of its texts.
	StopsMax     = 4
	StopBytesMax = 4096

	// BadWordsMax bounds Options.BadWords, and BadWordBytesMax each of them.
	BadWordsMax     = 1024
	BadWordBytesMax = 256

	// BreakersMax bounds DRY.Breakers, and BreakerBytesMax each of them.
	BreakersMax     = 64
	BreakerBytesMax = 64

	biasMax        = 100
	topLogprobsMax = 20
	// choicesMax bounds Options.N whatever a model says, since a choice costs
	// memory at both ends of the socket.
	choicesMax = 1024
)

// Check refuses options that are out of range or that m cannot follow. For a Model
// without limits it refuses only what no model can follow. The error names the
// parameter as clients know it, and what is allowed.
func (o *Options) Check(m *Model) *Error {
	if err := o.checkKind(m); err != nil {
		return err
	}
	choices, vocab := cmp.Or(m.ChoicesMax, choicesMax), cmp.Or(m.VocabTokens, math.MaxInt32)
	for _, p := range [...]struct {
		name        string
		value       int
		least, most int
	}{
		{"max_tokens", o.MaxTokens, 0, math.MaxInt32},
		{"n", o.N, 1, min(choices, choicesMax)},
		{"top_k", o.TopK, 0, math.MaxInt32},
		{"calls_max", o.CallsMax, 0, math.MaxInt32},
		{"thinking_budget", o.ReasoningMax, 0, math.MaxInt32},
		{"min_tokens", o.MinTokens, 0, math.MaxInt32},
		{"repeat_last_n", o.RepeatLast, 0, math.MaxInt32},
		{"dry_allowed_length", o.DRY.Length, 0, math.MaxInt32},
		{"dry_penalty_last_n", o.DRY.Last, 0, math.MaxInt32},
		{"top_logprobs", o.TopLogprobs, 0, min(vocab, topLogprobsMax)},
		{"prompt_logprobs", o.PromptTop, 0, min(vocab, topLogprobsMax)},
	} {
		if p.value < p.least || p.value > p.most {
			return InvalidParam(p.name, "%s must be a whole number from %d to %d, not %d", p.name, p.least, p.most, p.value)
		}
	}
	for _, p := range [...]struct {
		name        string
		value       float32
		least, most float32
	}{
		{"temperature", o.Temperature, 0, 2},
		{"top_p", o.TopP, 0, 1},
		{"min_p", o.MinP, 0, 1},
		{"typical_p", o.TypicalP, 0, 1},
		{"xtc_probability", o.XTCProbability, 0, 1},
		{"xtc_threshold", o.XTCThreshold, 0, 1},
		{"top_n_sigma", o.TopNSigma, 0, 100},
		{"mirostat_tau", o.MirostatTau, 0, 100},
		{"mirostat_eta", o.MirostatEta, 0, 1},
		{"dry_multiplier", o.DRY.Multiplier, 0, 100},
		{"dry_base", cmp.Or(o.DRY.Base, 1), 1, 100},
		{"repetition_penalty", cmp.Or(o.RepetitionPenalty, 1), 0.01, 100},
		{"presence_penalty", o.PresencePenalty, -2, 2},
		{"frequency_penalty", o.FrequencyPenalty, -2, 2},
	} {
		if !within(p.value, p.least, p.most) {
			return InvalidParam(p.name, "%s must be a number from %v to %v, not %v", p.name, p.least, p.most, p.value)
		}
	}
	if err := o.checkGrammar(); err != nil {
		return err
	}
	return o.checkLists(vocab)
}

// checkKind refuses an embedding of a model that generates, and the reverse.
func (o *Options) checkKind(m *Model) *Error {
	switch embedder := m.EmbeddingWidth > 0; {
	case m.VocabTokens == 0 || o.Embed == embedder:
		return nil
	case m.Ranks:
		return InvalidParam("model", "the model %s scores documents and generates no text; use /v1/rerank", m.ID)
	case embedder:
		return InvalidParam("model", "the model %s makes embeddings and generates no text; use /v1/embeddings", m.ID)
	}
	return InvalidParam("model", "the model %s generates text and makes no embeddings; serve an embedding model, as its file's key pooling_type says", m.ID)
}

func (o *Options) checkLists(vocab int) *Error {
	if len(o.Stop) > StopsMax {
		return InvalidParam("stop", "stop may hold at most %d strings", StopsMax)
	}
	for _, s := range o.Stop {
		if len(s) < 1 || len(s) > StopBytesMax {
			return InvalidParam("stop", "stop must be a string, or an array of strings, of 1 to %d bytes", StopBytesMax)
		}
	}
	for _, b := range o.LogitBias {
		switch {
		case b.Token < 0 || int(b.Token) >= vocab:
			return InvalidParam("logit_bias", "logit_bias names token %d; this model's tokens are 0 to %d", b.Token, vocab-1)
		case !within(b.Bias, -biasMax, biasMax):
			return InvalidParam("logit_bias", "logit_bias of token %d must be a number from %d to %d, not %v", b.Token, -biasMax, biasMax, b.Bias)
		}
	}
	for _, p := range [...]struct {
		name string
		list []int32
	}{{"stop_token_ids", o.StopTokens}, {"allowed_token_ids", o.AllowedTokens}} {
		for _, id := range p.list {
			if id < 0 || int(id) >= vocab {
				return InvalidParam(p.name, "%s names token %d; this model's tokens are 0 to %d", p.name, id, vocab-1)
			}
		}
	}
	return o.checkWords()
}

func (o *Options) checkWords() *Error {
	if len(o.BadWords) > BadWordsMax {
		return InvalidParam("bad_words", "bad_words may hold at most %d texts", BadWordsMax)
	}
	for _, s := range o.BadWords {
		if len(s) < 1 || len(s) > BadWordBytesMax {
			return InvalidParam("bad_words", "bad_words must be texts of 1 to %d bytes", BadWordBytesMax)
		}
	}
	if len(o.DRY.Breakers) > BreakersMax {
		return InvalidParam("dry_sequence_breakers", "dry_sequence_breakers may hold at most %d texts", BreakersMax)
	}
	for _, s := range o.DRY.Breakers {
		if len(s) < 1 || len(s) > BreakerBytesMax {
			return InvalidParam("dry_sequence_breakers", "dry_sequence_breakers must be texts of 1 to %d bytes", BreakerBytesMax)
		}
	}
	if o.MaxTokens > 0 && o.MinTokens > o.MaxTokens {
		return InvalidParam("min_tokens", "min_tokens is %d, more than max_tokens, which is %d", o.MinTokens, o.MaxTokens)
	}
	return nil
}

// within is false for NaN.
func within(x, least, most float32) bool { return x >= least && x <= most }
