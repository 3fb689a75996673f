package engine

import (
	"context"
	"errors"
	"time"

	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// loadPair finds how a ranker's prompt is made of a query and a document: by the file's
// template, or as BERT's pairs of texts.
func (p *loaded) loadPair(c chat.Config, err error) error {
	if !p.info.Ranks {
		return nil
	}
	encoder := p.embedder.Config().Encoder.On
	switch {
	case err != nil:
		return err
	case c.Rank != "":
		p.pair, err = chat.NewPair(c.Rank, p.tokenizer.ControlStrings())
		return err
	case !encoder:
		return errors.New("the model ranks documents, but its file has no template for it (key tokenizer.chat_template.rerank)")
	}
	return nil
}

// readPair makes a ranker's prompt of a query and a document.
func (e *Engine) readPair(ctx context.Context, query, document string) (*wire.Prompt, *wire.Error) {
	if !e.info.Ranks {
		return nil, wire.InvalidParam("documents", "the model %s takes one text at a time", e.info.ID)
	}
	began, text := time.Now(), query+"\n"+document
	if err := e.fitText(text, "documents"); err != nil {
		return nil, err
	}
	var tokens []int32
	var err error
	if p := e.loaded.pair; p != nil {
		text = p.Render(query, document)
		tokens, err = e.loaded.tokens.Encode(ctx, text, tokenizer.EncodeOptions{ParseSpecial: true})
		text = tokenizer.Unguard(text)
	} else {
		tokens, err = e.encodeTexts(ctx, query, document)
	}
	if err != nil {
		return nil, errAbandoned()
	}
	return &wire.Prompt{Tokens: tokens, Text: text, Tokenize: time.Since(began)}, nil
}

// encodeTexts is two texts with the tokenizer's special tokens around and between them, such as
// [CLS] query [SEP] document [SEP].
func (e *Engine) encodeTexts(ctx context.Context, first, second string) ([]int32, error) {
	a, err := e.loaded.tokens.Encode(ctx, first, tokenizer.EncodeOptions{})
	if err != nil {
		return nil, err
	}
	b, err := e.loaded.tokens.Encode(ctx, second, tokenizer.EncodeOptions{})
	return e.loaded.tokenizer.Pair(nil, a, b), err
}
