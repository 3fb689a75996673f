package engine

import (
	"math"

	"github.com/forebay-io/forebay/internal/wire"
)

// checkOptions refuses options that are out of range or that this model
// cannot follow. The words name what is allowed.
func (e *Engine) checkOptions(o *wire.Options) *wire.Error {
	choicesMax := min(e.cfg.ChoicesMax, e.cfg.SequencesMax)
	switch {
	case o.N < 1 || o.N > choicesMax:
		return wire.InvalidParam("n", "n is %d; it must be from 1 to %d", o.N, choicesMax)
	case o.MaxTokens < 0:
		return wire.InvalidParam("max_tokens", "max_tokens is %d; it must be at least 1, or absent", o.MaxTokens)
	case !within(o.Temperature, 0, math.MaxFloat32):
		return wire.InvalidParam("temperature", "temperature is %v; it must be a number from 0", o.Temperature)
	case o.TopK < 0:
		return wire.InvalidParam("top_k", "top_k is %d; it must be 0 or more", o.TopK)
	case !within(o.TopP, 0, 1):
		return wire.InvalidParam("top_p", "top_p is %v; it must be from 0 to 1", o.TopP)
	case !within(o.MinP, 0, 1):
		return wire.InvalidParam("min_p", "min_p is %v; it must be from 0 to 1", o.MinP)
	case !within(o.RepetitionPenalty, 0, math.MaxFloat32):
		return wire.InvalidParam("repetition_penalty", "repetition_penalty is %v; it must be a number above 0", o.RepetitionPenalty)
	case !within(o.PresencePenalty, -math.MaxFloat32, math.MaxFloat32):
		return wire.InvalidParam("presence_penalty", "presence_penalty must be a finite number")
	case !within(o.FrequencyPenalty, -math.MaxFloat32, math.MaxFloat32):
		return wire.InvalidParam("frequency_penalty", "frequency_penalty must be a finite number")
	case o.TopLogprobs < 0 || o.TopLogprobs > e.info.VocabTokens:
		return wire.InvalidParam("top_logprobs", "top_logprobs is %d; it must be from 0 to %d", o.TopLogprobs, e.info.VocabTokens)
	}
	for _, b := range o.LogitBias {
		if b.Token < 0 || int(b.Token) >= e.info.VocabTokens {
			return wire.InvalidParam("logit_bias", "logit_bias names token %d; this model's tokens are 0 to %d", b.Token, e.info.VocabTokens-1)
		}
		if !within(b.Bias, -math.MaxFloat32, math.MaxFloat32) {
			return wire.InvalidParam("logit_bias", "logit_bias of token %d must be a finite number", b.Token)
		}
	}
	return nil
}

// within is false for NaN.
func within(x, lo, hi float32) bool { return x >= lo && x <= hi }

// fitText refuses a text whose bytes alone say that it is too long: encoding
// it first would cost memory and time that others are waiting for.
func (e *Engine) fitText(text, param string) *wire.Error {
	least := e.parts.tokenizer.TokensMin(len(text))
	if least < e.info.ContextTokens {
		return nil
	}
	err := wire.Errorf(wire.ContextLength, "the prompt has %d bytes, which are %d tokens or more, and this model's context holds %d, prompt and answer together; shorten the prompt",
		len(text), least, e.info.ContextTokens)
	err.Param = param
	return err
}

// fit says how many tokens each choice may generate after a prompt of this
// length, or why there is no room. Param names the prompt's field.
func (e *Engine) fit(promptTokens, maxTokens int, param string) (int, *wire.Error) {
	refuse := func(kind wire.Kind, param, format string, args ...any) (int, *wire.Error) {
		err := wire.Errorf(kind, format, args...)
		err.Param = param
		return 0, err
	}
	room := e.info.ContextTokens - promptTokens
	poolRoom := e.poolTokens + 1 - promptTokens // the last token of an answer is never computed, so it takes no page
	switch {
	case promptTokens == 0:
		return refuse(wire.Invalid, param, "the prompt has no tokens; give at least one")
	case room < 1:
		return refuse(wire.ContextLength, param, "the prompt has %d tokens, and this model's context holds %d, prompt and answer together; shorten the prompt",
			promptTokens, e.info.ContextTokens)
	case poolRoom < 1:
		return refuse(wire.TooLarge, param, "the prompt's %d tokens can never fit into this engine's memory for %d; shorten the prompt, or raise engine.kv_bytes",
			promptTokens, e.poolTokens)
	case min(maxTokens, room) > poolRoom:
		return refuse(wire.TooLarge, "max_tokens", "max_tokens is %d; after the prompt's %d tokens this engine's memory can never hold more than %d; lower max_tokens, or raise engine.kv_bytes",
			maxTokens, promptTokens, poolRoom)
	}
	room = min(room, poolRoom)
	if maxTokens > 0 {
		room = min(room, maxTokens)
	}
	return room, nil
}
