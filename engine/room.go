package engine

import "github.com/forebay-io/forebay/internal/wire"

// fitText refuses a text whose bytes alone say that it is too long: encoding
// it first would cost memory and time that others are waiting for.
func (e *Engine) fitText(text, param string) *wire.Error {
	least := e.loaded.tokenizer.TokensMin(len(text))
	if least < e.info.ContextTokens {
		return nil
	}
	err := wire.Errorf(wire.ContextLength, "the prompt has %d bytes, which are %d tokens or more, and this model's context holds %d, prompt and answer together; shorten the prompt",
		len(text), least, e.info.ContextTokens)
	err.Param = param
	return err
}

// room says how many tokens each choice may generate after a prompt of this
// length, or why there is no room. Param names the prompt's field.
func (e *Engine) room(promptTokens int, param string) (int, *wire.Error) {
	refuse := func(kind wire.Kind, format string, args ...any) (int, *wire.Error) {
		err := wire.Errorf(kind, format, args...)
		err.Param = param
		return 0, err
	}
	contextRoom := e.info.ContextTokens - promptTokens
	if e.loaded.embedder != nil {
		contextRoom++ // nothing is generated
	}
	poolRoom := e.poolTokens + 1 - promptTokens // the last token of an answer is never computed, so it takes no page
	switch {
	case promptTokens == 0:
		return refuse(wire.Invalid, "the prompt has no tokens; give at least one")
	case contextRoom < 1:
		return refuse(wire.ContextLength, "the prompt has %d tokens, and this model's context holds %d, prompt and answer together; shorten the prompt",
			promptTokens, e.info.ContextTokens)
	case poolRoom < 1:
		return refuse(wire.TooLarge, "the prompt's %d tokens can never fit into this engine's memory for %d; shorten the prompt, or raise engine.kv_bytes",
			promptTokens, e.poolTokens)
	}
	return min(contextRoom, poolRoom), nil
}
