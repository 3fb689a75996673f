package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/engine/grammar/ebnf"
	"github.com/forebay-io/forebay/engine/grammar/schema"
	"github.com/forebay-io/forebay/engine/grammar/tools"
	"github.com/forebay-io/forebay/engine/mask"
	"github.com/forebay-io/forebay/internal/wire"
)

// grammars compiles what answers are held to, and keeps it by its text. Its methods
// may be called from any goroutine.
type grammars struct {
	cfg   GrammarConfig
	cache *mask.Cache
	slots chan struct{} // one is held while a grammar is compiled
	// trie is made when the first grammar comes: most engines never see one.
	trie   func() *mask.Trie
	speech *speech
	// forgets says that masks are not remembered. Tests set it before the first use.
	forgets bool

	compiled, found, refused atomic.Uint64
}

func newGrammars(cfg GrammarConfig, v mask.Vocabulary, s *speech) *grammars {
	return &grammars{
		speech: s,
		cfg:    cfg, cache: mask.NewCache(cfg.CacheBytesMax), slots: make(chan struct{}, cfg.CompilesMax),
		trie: sync.OnceValue(func() *mask.Trie { return mask.NewTrie(marked{v, s}) }),
	}
}

// marked is a vocabulary in which the markers of the model's format are no text, also
// those that are not control tokens: the parser takes each for what it marks.
type marked struct {
	mask.Vocabulary
	speech *speech
}

func (m marked) IsControl(id int32) bool {
	return m.Vocabulary.IsControl(id) || m.speech.calls != nil && m.speech.calls.Marks(id)
}

// get is the compiled form of g after l. The error names g's field and what to change in it.
func (e *grammars) get(ctx context.Context, g *wire.Grammar, l lead) (*mask.Compiled, *wire.Error) {
	if l&orCalls != 0 && g.Calls == nil && len(e.speech.found.Format.Open) == 0 {
		return nil, errBareCalls(e.speech.found.Format.Name)
	}
	compiledNow := false
	c, err := e.cache.Get(keyOf(g, l), func() (*mask.Compiled, error) {
		select {
		case e.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, errAbandoned()
		}
		defer func() { <-e.slots }()
		compiledNow = true
		return e.compile(g, l)
	})
	switch {
	case err == nil && compiledNow:
		e.compiled.Add(1)
	case err == nil:
		e.found.Add(1)
	default:
		if failed := (*wire.Error)(nil); errors.As(err, &failed) {
			if failed.Kind != wire.Canceled || ctx.Err() != nil {
				return nil, failed
			}
			return e.get(ctx, g, l) // the caller that compiled it has left
		}
		e.refused.Add(1)
		return nil, e.refusal(g, err)
	}
	return c, nil
}

// known is the compiled form of g after l, nil where it is not kept.
func (e *grammars) known(g *wire.Grammar, l lead) *mask.Compiled { return e.cache.Find(keyOf(g, l)) }

// keyOf has all that the compiled form of g depends on.
func keyOf(g *wire.Grammar, l lead) string {
	key := string([]byte{byte(l), byte(g.Kind)}) + strconv.FormatBool(g.Strict) + strconv.FormatBool(g.Compact) + g.Text
	if c := g.Calls; c != nil {
		key += "\x00" + strconv.FormatBool(c.Required) + strconv.Itoa(c.Most) + "\x00" + string(c.Tools)
	}
	return key
}

func (e *grammars) compile(g *wire.Grammar, l lead) (*mask.Compiled, error) {
	trie := e.trie()
	b := grammar.NewBuilder(e.cfg.grammarLimits())
	b.Without(trie.Missing())
	whole, notes, err := e.build(b, g, l)
	if err != nil {
		return nil, err
	}
	c, err := mask.Compile(whole, trie)
	if err != nil {
		return nil, err
	}
	c.Notes = notes
	return c, nil
}

// build makes the grammar of g after l with b, and notes the words of a schema
// without effect.
func (e *grammars) build(b *grammar.Builder, g *wire.Grammar, l lead) (whole *grammar.Grammar, notes []string, err error) {
	switch g.Kind {
	case wire.GrammarObject:
		return e.buildSchema(b, g, `{"type":"object"}`, l)
	case wire.GrammarSchema:
		return e.buildSchema(b, g, g.Text, l)
	}
	var answer grammar.Expr
	switch g.Kind {
	case wire.GrammarRegex:
		var re grammar.Regex
		re, err = b.Pattern(g.Text, grammar.PatternOptions{})
		answer = b.Terminal("answer", re)
	case wire.GrammarChoice:
		var texts []string
		if json.Unmarshal([]byte(g.Text), &texts) != nil || len(texts) == 0 {
			return nil, nil, errors.New("it must be an array of texts, and not empty")
		}
		if len(texts) > e.cfg.EnumValuesMax {
			return nil, nil, &grammar.LimitError{Limit: "texts to choose from", Max: e.cfg.EnumValuesMax}
		}
		answer = b.Terminal("choice", b.Literals(texts))
	case wire.GrammarGBNF:
		answer, err = ebnf.GBNF(b, g.Text)
	case wire.GrammarLark:
		answer, err = ebnf.Lark(b, g.Text, func(text string) (grammar.Expr, error) {
			r, err := schema.Compile(b, text, schema.Options{Strict: g.Strict, Compact: g.Compact, Limits: e.cfg.schemaLimits()})
			if err != nil {
				return 0, err
			}
			return r.Value, nil
		})
	}
	if err != nil {
		return nil, nil, err
	}
	return e.whole(b, g, l, answer)
}

// whole makes the grammar of an answer, with what may stand before it or in its place.
func (e *grammars) whole(b *grammar.Builder, g *wire.Grammar, l lead, answer grammar.Expr) (*grammar.Grammar, []string, error) {
	if g.Calls == nil {
		whole, err := b.Compile(e.speech.before(b, l, answer))
		return whole, nil, err
	}
	o := tools.Options{Tools: calls.ReadTools(g.Calls.Tools), Most: g.Calls.Most, Schema: schema.Options{Compact: g.Compact, OneLine: true, Limits: e.cfg.schemaLimits()}}
	f := e.speech.calls
	r, err := tools.Compile(b, f, o)
	if err != nil {
		return nil, nil, err
	}
	var notes []string
	if g.Kind == wire.GrammarCalls {
		for _, name := range r.Loose[:min(len(r.Loose), wire.UnenforcedMax)] {
			notes = append(notes, "."+name+".parameters")
		}
		answer = b.Terminal("content", tools.Content(b, f, false))
	}
	held := r.Calls
	switch {
	case g.Calls.Required:
		answer = noAnswer
	case g.Kind == wire.GrammarCalls && l&^orCalls != harmonyLead:
		held = b.Seq(b.Terminal("content", tools.Content(b, f, true)), held)
	}
	whole, err := b.Compile(e.speech.beforeCalls(b, l, answer, held))
	return whole, notes, err
}

// buildSchema is build for the text of a JSON Schema.
func (e *grammars) buildSchema(b *grammar.Builder, g *wire.Grammar, text string, l lead) (whole *grammar.Grammar, notes []string, err error) {
	o := schema.Options{Strict: g.Strict, Compact: g.Compact, Limits: e.cfg.schemaLimits()}
	r, err := schema.Compile(b, text, o)
	if err != nil {
		return nil, nil, err
	}
	for _, word := range r.Ignored[:min(len(r.Ignored), wire.UnenforcedMax)] {
		notes = append(notes, word.Pointer)
	}
	whole, _, err = e.whole(b, g, l, r.Value)
	if refused := (*tools.Refusal)(nil); err != nil && !errors.As(err, &refused) {
		return nil, nil, schema.Whole(text, err, o)
	}
	return whole, notes, err
}

// refusal says what of g cannot be enforced, and where it is.
func (e *grammars) refusal(g *wire.Grammar, err error) *wire.Error {
	where, why := g.Param, err.Error()
	if refused := (*tools.Refusal)(nil); errors.As(err, &refused) {
		return e.refusal(&wire.Grammar{Param: wire.ToolPlace(refused.Tool)}, refused.Cause)
	}
	if refusal := (*schema.Refusal)(nil); errors.As(err, &refusal) {
		where += refusal.Pointer
		why = refusal.Reason
		if refusal.Keyword != "" {
			why = fmt.Sprintf("%s cannot be enforced: %s", refusal.Keyword, refusal.Reason)
		}
	}
	if missing := e.trie().Missing(); len(missing) > 0 && errors.As(err, new(*grammar.EmptyError)) {
		why += fmt.Sprintf(": it has no end, or it needs bytes that this model's vocabulary cannot spell (% x)", missing)
	}
	return &wire.Error{Kind: wire.Invalid, Param: g.Param, Message: where + ": " + why}
}
