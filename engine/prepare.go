package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// Prepare implements wire.Engine.
func (e *Engine) Prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, error) {
	e.preparing.RLock()
	defer e.preparing.RUnlock()
	if err := e.inbox.refusal(); err != nil {
		return nil, err
	}
	p, err := e.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// prepare is the path of a request to a prompt: read, check, measure.
func (e *Engine) prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, *wire.Error) {
	p, param, err := e.read(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Grammar != nil {
		if err := e.prepareGrammar(ctx, r, p); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, errAbandoned()
	}
	if err := e.checkTokens(p.Tokens); err != nil {
		err.Param = param
		return nil, err
	}
	if p.Room, err = e.room(len(p.Tokens), param); err != nil {
		return nil, err
	}
	if e.loaded.wholeTexts() {
		return p, nil // nothing of it is taken from the cache
	}
	p.BlockHashes = e.pool.Hasher().Blocks(r.Salt, p.Tokens)
	p.CachedTokens = e.pool.Match(r.Salt, p.Tokens)
	_, blocks := e.disk.there(r.Salt, p.Tokens, p.CachedTokens, blockTime(&e.State().Cost, e.cfg.PageTokens))
	p.CachedTokens += blocks * e.cfg.PageTokens
	return p, nil
}

// prepareGrammar compiles the grammar, so that its faults are found before the
// queue, and Generate finds it compiled.
func (e *Engine) prepareGrammar(ctx context.Context, r *wire.Request, p *wire.Prompt) *wire.Error {
	began := time.Now()
	c, err := e.grammars.get(ctx, r.Grammar, e.leadOf(p, r.Messages != nil, r.Tools != nil && !r.NoCalls))
	if err != nil {
		return err
	}
	p.Compile, p.Unenforced = time.Since(began), c.Notes
	return nil
}

func errAbandoned() *wire.Error {
	return wire.Errorf(wire.Canceled, "the request was abandoned while its prompt was prepared")
}

// read turns the request's one source into tokens; param is its client's name.
func (e *Engine) read(ctx context.Context, r *wire.Request) (p *wire.Prompt, param string, err *wire.Error) {
	sources := 0
	for _, set := range [...]bool{r.Messages != nil, r.Text != nil, r.Tokens != nil} {
		if set {
			sources++
		}
	}
	if sources != 1 {
		return nil, "", wire.InvalidParam("prompt", "give exactly one of messages, text and tokens")
	}
	switch {
	case r.Messages != nil:
		p, err = e.readMessages(ctx, r)
		return p, "messages", err
	case r.Document != nil:
		if r.Text == nil {
			return nil, "", wire.InvalidParam("query", "a document needs a query")
		}
		p, err = e.readPair(ctx, *r.Text, *r.Document)
		return p, "documents", err
	case e.info.Ranks && r.Text != nil:
		return nil, "", wire.InvalidParam("model", "the model %s scores documents; use /v1/rerank", e.info.ID)
	case r.Text != nil:
		if err := e.fitText(*r.Text, "prompt"); err != nil {
			return nil, "", err
		}
		began := time.Now()
		tokens, failed := e.loaded.tokens.Encode(ctx, *r.Text, tokenizer.EncodeOptions{AddSpecial: true})
		if failed != nil {
			return nil, "", errAbandoned()
		}
		return &wire.Prompt{Tokens: tokens, Text: *r.Text, Tokenize: time.Since(began)}, "prompt", nil
	}
	tokens := append([]int32(nil), r.Tokens...)
	return &wire.Prompt{Tokens: tokens, Text: e.loaded.tokenizer.Decode(tokens)}, "prompt", nil
}

// readMessages renders the chat template and tokenizes what it gives. The
// prompt begins with one begin token where the file asks for it, whether the
// template writes it or not.
func (e *Engine) readMessages(ctx context.Context, r *wire.Request) (*wire.Prompt, *wire.Error) {
	if e.loaded.template == nil {
		return nil, wire.InvalidParam("messages", "this model cannot chat: %s; send a text prompt instead", e.info.ChatError)
	}
	var messages []json.RawMessage
	if err := json.Unmarshal(r.Messages, &messages); err != nil {
		return nil, wire.InvalidParam("messages", "messages must be an array of objects: %v", err)
	}
	if len(messages) == 0 {
		return nil, wire.InvalidParam("messages", "messages is empty; give at least one message")
	}
	limited, cancel := context.WithTimeout(ctx, e.cfg.PromptRenderBudget)
	defer cancel()
	began := time.Now()
	in := chat.Input{Messages: r.Messages, Tools: r.Tools, Options: e.loaded.speech.options(r), Now: began, Continue: r.Continue, Format: e.loaded.speech.found.Format, Polyfill: e.loaded.speech.polyfill}
	if err := e.loaded.speech.place(&in); err != nil {
		return nil, err
	}
	text, err := e.loaded.template.Render(limited, in)
	rendered := time.Now()
	if err != nil {
		return nil, e.renderError(ctx, err)
	}
	if err := e.fitText(tokenizer.Unguard(text), "messages"); err != nil {
		return nil, err
	}
	if r.Think == wire.ThinkOff && e.loaded.speech.plain.OpensReasoning(text) {
		return nil, wire.InvalidParam("enable_thinking", "this model's chat template always begins an answer with reasoning; give a small thinking_budget instead")
	}
	tokens, err := e.loaded.tokens.Encode(ctx, text, tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		return nil, errAbandoned()
	}
	if t := e.loaded.tokenizer; t.AddsBOS() && (len(tokens) == 0 || tokens[0] != t.BOS()) {
		tokens = slices.Insert(tokens, 0, t.BOS())
	}
	return &wire.Prompt{Tokens: tokens, Text: tokenizer.Unguard(text), Calls: callsOf(messages), Render: rendered.Sub(began), Tokenize: time.Since(rendered)}, nil
}

func (e *Engine) renderError(ctx context.Context, err error) *wire.Error {
	var raised *chat.Raised
	var options *chat.OptionsError
	var open *chat.ContinueError
	switch {
	case ctx.Err() != nil:
		return errAbandoned()
	case errors.As(err, &raised):
		return wire.InvalidParam("messages", "the model's chat template refuses the messages: %v", raised)
	case errors.As(err, &open):
		return wire.InvalidParam("continue_final_message", "%v", open)
	case errors.As(err, &options):
		return wire.InvalidParam("chat_template_kwargs", "chat_template_kwargs: %s", options.Reason)
	case errors.Is(err, context.DeadlineExceeded):
		return wire.InvalidParam("messages", "the model's chat template did not render the messages within %v; shorten them, or raise engine.prompt_render_budget", e.cfg.PromptRenderBudget)
	}
	return wire.InvalidParam("messages", "the model's chat template cannot render the messages: %v", err)
}
