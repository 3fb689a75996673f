package wiretest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// withFakeModel fills the zero fields of m.
func withFakeModel(m wire.Model) wire.Model {
	if m.ID == "" {
		m.ID = "fake"
		m.Chat = true
	}
	own := wire.Model{
		Architecture: "fake", Digest: "fake", Fingerprint: "fp_fake", Kernels: "none", Quantisation: "none",
		ContextTokens: 4096, VocabTokens: 256, PageTokens: 16, PageBytes: 1024, ChoicesMax: 128, CreatedUnix: 1700000000,
	}
	set := func(field *string, text string) {
		if *field == "" {
			*field = text
		}
	}
	set(&m.Architecture, own.Architecture)
	set(&m.Digest, own.Digest)
	set(&m.Fingerprint, own.Fingerprint)
	set(&m.Kernels, own.Kernels)
	set(&m.Quantisation, own.Quantisation)
	for _, f := range []struct {
		field *int
		n     int
	}{{&m.ContextTokens, own.ContextTokens}, {&m.VocabTokens, own.VocabTokens}, {&m.PageTokens, own.PageTokens}, {&m.PageBytes, own.PageBytes}, {&m.ChoicesMax, own.ChoicesMax}} {
		if *f.field == 0 {
			*f.field = f.n
		}
	}
	if m.CreatedUnix == 0 {
		m.CreatedUnix = own.CreatedUnix
	}
	return m
}

// Prepare implements wire.Engine. A token is a byte of the text; chat
// messages render as "role: content\n" each, with "assistant: " at the end.
func (f *Fake) Prepare(ctx context.Context, r *wire.Request) (*wire.Prompt, error) {
	f.mu.Lock()
	err := f.refusal()
	if err == nil {
		f.record(r.ID).Prepared = true
	}
	f.mu.Unlock()
	if err == nil && f.cfg.Prepare != nil {
		err = f.cfg.Prepare(ctx, r)
	}
	if err == nil && ctx.Err() != nil {
		err = wire.Errorf(wire.Canceled, "the request was abandoned while its prompt was prepared")
	}
	if err != nil {
		return nil, err
	}
	text, param, err := render(r, &f.cfg.Model)
	if err != nil {
		return nil, err
	}
	p := &wire.Prompt{Text: text, Calls: callsOf(r.Messages)}
	for _, b := range []byte(text) {
		p.Tokens = append(p.Tokens, int32(b))
	}
	if p.Room, err = room(len(p.Tokens), param, &f.cfg.Model); err != nil {
		return nil, err
	}
	return p, nil
}

// render returns the text of a request, and the client's name of the parameter that
// it came from.
func render(r *wire.Request, m *wire.Model) (text, param string, err *wire.Error) {
	sources := 0
	for _, set := range []bool{r.Messages != nil, r.Text != nil, r.Tokens != nil} {
		if set {
			sources++
		}
	}
	switch {
	case sources != 1:
		return "", "prompt", wire.InvalidParam("prompt", "exactly one of messages, text and tokens must be given")
	case r.Messages != nil:
		text, err = renderMessages(r.Messages)
		return text, "messages", err
	case r.Text != nil:
		return *r.Text, "prompt", nil
	}
	b := make([]byte, len(r.Tokens))
	for i, id := range r.Tokens {
		if id < 0 || int(id) >= m.VocabTokens || id > 255 {
			return "", "prompt", wire.InvalidParam("prompt", "token %d at index %d is outside the vocabulary [0,%d)", id, i, m.VocabTokens)
		}
		b[i] = byte(id)
	}
	return string(b), "prompt", nil
}

func renderMessages(raw json.RawMessage) (string, *wire.Error) {
	var messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &messages); err != nil {
		return "", wire.InvalidParam("messages", "messages must be an array of objects: %v", err)
	}
	if len(messages) == 0 {
		return "", wire.InvalidParam("messages", "messages must hold at least one message")
	}
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Role + ": " + contentText(m.Content) + "\n")
	}
	return b.String() + "assistant: ", nil
}

// callsOf counts the tool calls of messages.
func callsOf(raw json.RawMessage) (n int) {
	var messages []struct {
		Calls []json.RawMessage `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &messages) == nil {
		for _, m := range messages {
			n += len(m.Calls)
		}
	}
	return n
}

// contentText is a message's text: a string, or the texts of its parts.
func contentText(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) || json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return string(raw)
	}
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// room is how many tokens the context has after a prompt, or why there are none.
func room(promptTokens int, param string, m *wire.Model) (int, *wire.Error) {
	if promptTokens == 0 {
		return 0, wire.InvalidParam(param, "the prompt must hold at least one token")
	}
	if promptTokens >= m.ContextTokens {
		e := wire.Errorf(wire.ContextLength, "the prompt has %d tokens, and the model's context holds %d with at least one to generate", promptTokens, m.ContextTokens)
		e.Param = param
		return 0, e
	}
	return m.ContextTokens - promptTokens, nil
}

// check refuses what a peer must not send, and returns how many tokens each choice
// of g may generate.
func check(g *wire.Generation, m *wire.Model) (maxTokens int, err *wire.Error) {
	if err := g.Check(m); err != nil {
		return 0, err
	}
	for i, id := range g.Prompt.Tokens {
		if id < 0 || int(id) >= m.VocabTokens {
			return 0, wire.InvalidParam("prompt", "token %d at index %d is outside the vocabulary [0,%d)", id, i, m.VocabTokens)
		}
	}
	most, err := room(len(g.Prompt.Tokens), "prompt", m)
	if err == nil && g.Options.MaxTokens > most {
		err = wire.InvalidParam("max_tokens", "max_tokens is %d where the prompt leaves room for %d", g.Options.MaxTokens, most)
	}
	return cmp.Or(g.Options.MaxTokens, most), err
}

// promptLogprobs are the fake's log-probabilities of a prompt's tokens.
func promptLogprobs(g *wire.Generation) []wire.TokenLogprob {
	all := make([]wire.TokenLogprob, len(g.Prompt.Tokens))
	for i, id := range g.Prompt.Tokens {
		all[i] = logprob(string([]byte{byte(id)}), g.Options.PromptTop)
		all[i].Rank = i
		if i == 0 {
			all[i].Logprob, all[i].Top = float32(math.NaN()), nil
		}
	}
	return all
}

// wait polls ok until it holds or the limit has passed.
func wait(limit time.Duration, ok func() bool) bool {
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}
