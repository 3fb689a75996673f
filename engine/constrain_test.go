package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/internal/wire"
)

// schemaOf is a schema as the gateway hands it over.
func schemaOf(text string) *wire.Grammar {
	return &wire.Grammar{Kind: wire.GrammarSchema, Text: text, Param: "response_format.json_schema.schema"}
}

// follows says whether text is an answer of g: whole, or, of one that was cut, the
// beginning of one.
func (b *lab) follows(g *wire.Grammar, text string, whole bool) bool {
	b.t.Helper()
	builder := grammar.NewBuilder(grammar.DefaultLimits())
	compiled, _, err := b.grammars.build(builder, g, noLead)
	if err != nil {
		b.t.Fatal(err)
	}
	a := compiled.NewAutomaton()
	s, err := a.Start()
	for i := 0; i < len(text) && err == nil; i++ {
		if s, err = a.Next(s, text[i]); s == grammar.Dead {
			return false
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return !whole || a.Accepting(s)
}

// schemas are those of the corpus that compile, without those whose answers are
// longer than a test has time for.
func schemas(t *testing.T, count int) (all []*wire.Grammar) {
	path := filepath.Join("..", "..", "shared", "conformance", "schemas", "schemas.jsonl")
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("SKIPPED: the schemas are missing: %s", path)
	}
	defer f.Close()
	b := newLab(t, labSetup{})
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for n := 0; lines.Scan() && len(all) < count; n++ {
		var line struct{ Schema json.RawMessage }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if g := schemaOf(string(line.Schema)); len(g.Text) < 4000 && n%2 == 0 {
			if _, err := b.grammars.get(t.Context(), g, noLead); err == nil {
				all = append(all, g)
			}
		}
	}
	return all
}

// constrained are questions about schemas: greedy and sampled, of one choice and of
// several.
func constrained(all []*wire.Grammar) (qs []question) {
	for i, g := range all {
		q := question{id: fmt.Sprint("q", i), tokens: prompt(uint64(i%3), 20+i%50), key: int64(i * 31 % 7), level: i * 5 % 3,
			options: wire.Options{N: 1, MaxTokens: 12 + i%20, Grammar: g}}
		switch i % 4 {
		case 1:
			q.options.Temperature, q.options.Seed, q.options.TopP = 0.9, uint64(i), 0.95
		case 2:
			q.options.N, q.options.Temperature, q.options.Seed = 3, 1, uint64(i)
		case 3:
			q.options.Temperature, q.options.RepetitionPenalty, q.options.FrequencyPenalty = 0.7, 1.2, 0.3
			q.options.Logprobs, q.options.TopLogprobs = true, 2
		}
		qs = append(qs, q)
	}
	return qs
}

// TestAnswersFollowTheirSchemas asks a model that knows no JSON at all. Every answer
// is an instance or the beginning of one; it is the same with its neighbours and
// without them, with masks remembered and found anew, and so are its logits.
func TestAnswersFollowTheirSchemas(t *testing.T) {
	count := 200
	if testing.Short() || underRace {
		count = 40
	}
	qs := constrained(schemas(t, count))
	alone := newLab(t, labSetup{})
	var want []answer
	ended := map[wire.Finish]int{}
	for _, q := range qs {
		a := alone.ask(q)
		mustEnd(t, q, a)
		for c, text := range a.texts {
			ended[a.finishes[c]]++
			if !alone.follows(q.options.Grammar, text, a.finishes[c] == wire.FinishStop) {
				t.Errorf("%s: the answer %q (finish %d) does not follow %s", q.id, text, a.finishes[c], q.options.Grammar.Text)
			}
		}
		want = append(want, a)
	}
	if ended[wire.FinishStop] < count/4 || ended[wire.FinishLength] < count/10 {
		t.Errorf("too few answers ended in one way: %v", ended)
	}
	r := rand.New(rand.NewPCG(1, 2))
	c := &chaos{random: r, batch: 60}
	cfg := Config{StreamEventsMax: 4, SequencesMax: 12, WaitingMax: 1000, Grammar: GrammarConfig{CacheBytesMax: 1 << 20}}
	together := newLab(t, labSetup{pages: 60, cfg: cfg, onTurn: func(b *lab) { c.turn(b) }})
	together.grammars.forgets = true
	for i, a := range together.askAll(qs) {
		mustEnd(t, qs[i], a)
		sameAnswer(t, qs[i], a, want[i])
		for choice := range qs[i].options.N {
			if !slices.Equal(together.logitsBits(qs[i].id, choice), alone.logitsBits(qs[i].id, choice)) {
				t.Errorf("%s: the logits of choice %d differ from the run alone", qs[i].id, choice)
			}
		}
	}
	together.mustIdle()
	if s := together.State(); s.GrammarsCompiled < uint64(count)*9/10 || s.GrammarsFailed != 0 {
		t.Errorf("%d grammars were compiled, %d failed", s.GrammarsCompiled, s.GrammarsFailed)
	}
}

// TestTheDemoModelAnswersInJSON: a real model, whole answers.
func TestTheDemoModelAnswersInJSON(t *testing.T) {
	b := newDemo(t, Config{})
	g := schemaOf(`{"type":"object","properties":{"name":{"type":"string","maxLength":20},"age":{"type":"integer","minimum":0,"maximum":150},
		"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},"required":["name","age","tags"],"additionalProperties":false}`)
	seeds := uint64(20)
	if underRace {
		seeds = 4
	}
	for seed := range seeds {
		o := wire.Options{MaxTokens: 200, Temperature: 1, Seed: seed, Grammar: g, Logprobs: true}
		if seed == 0 {
			o.Temperature = 0
		}
		_, a := b.chat(`[{"role":"user","content":"Who are you?"}]`, o)
		var got struct {
			Name *string
			Age  *int
			Tags []string
		}
		if err := json.Unmarshal([]byte(a.texts[0]), &got); err != nil || got.Name == nil || got.Age == nil || got.Tags == nil || *got.Age > 150 || a.finishes[0] != wire.FinishStop {
			t.Errorf("%q, finish %d: %v", a.texts[0], a.finishes[0], err)
		}
		spelled := ""
		for _, l := range a.logprobs[0] {
			spelled += string(l.Bytes)
			if !(l.Logprob <= 0) {
				t.Errorf("a log-probability of %v", l.Logprob)
			}
		}
		if spelled != a.texts[0] {
			t.Errorf("the tokens spell %q, the text is %q", spelled, a.texts[0])
		}
		if a.end.Timings.BeforeFirst[wire.PartMask]+a.end.Timings.AfterFirst[wire.PartMask] == 0 {
			t.Error("the masks took no time")
		}
	}
}

// TestLogprobsAreBeforeTheMask: they are the model's own, as without a schema.
func TestLogprobsAreBeforeTheMask(t *testing.T) {
	b := newLab(t, labSetup{})
	q := question{id: "free", tokens: prompt(1, 20), options: wire.Options{MaxTokens: 1, Logprobs: true, TopLogprobs: 3}}
	free := b.ask(q)
	q.id, q.options.Grammar = "held", schemaOf(`{"type":"boolean"}`)
	held := b.ask(q)
	if held.texts[0] == free.texts[0] || held.finishes[0] != wire.FinishLength {
		t.Fatalf("%q, finish %d", held.texts[0], held.finishes[0])
	}
	for i, top := range held.logprobs[0][0].Top {
		if top.ID != free.logprobs[0][0].Top[i].ID || top.Logprob != free.logprobs[0][0].Top[i].Logprob {
			t.Errorf("place %d: %+v, without a schema %+v", i, top, free.logprobs[0][0].Top[i])
		}
	}
}

func TestWhatCannotBeEnforcedIsRefused(t *testing.T) {
	b := newLab(t, labSetup{})
	for _, c := range []struct {
		g    *wire.Grammar
		want []string
	}{
		{schemaOf(`{"properties":{"a/b":{"$dynamicRef":"#x"}}}`), []string{"response_format.json_schema.schema/properties/a~1b/$dynamicRef: $dynamicRef cannot be enforced"}},
		{schemaOf(`{"type":"string","minLength":3,"maxLength":2}`), []string{"matches nothing"}},
		{schemaOf(`{"enum":[]}`), []string{"enum cannot be enforced"}},
		{schemaOf(`{"type":`), []string{"response_format.json_schema.schema: "}},
		{schemaOf(`7`), []string{"response_format.json_schema.schema"}},
		{&wire.Grammar{Kind: wire.GrammarSchema, Strict: true, Text: `{"type":"string","format":"unheard-of"}`, Param: "p"}, []string{"p/format: format cannot be enforced"}},
		{schemaOf(strings.Repeat(`{"items":`, 70) + `{}` + strings.Repeat(`}`, 70)), []string{"64"}},
	} {
		text := "hi"
		_, err := b.Prepare(t.Context(), &wire.Request{Text: &text, Grammar: c.g})
		e := wire.AsError(err)
		if e == nil || e.Kind != wire.Invalid || e.Param != c.g.Param {
			t.Errorf("%.60s: %v", c.g.Text, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(e.Message, want) {
				t.Errorf("%.60s: %q lacks %q", c.g.Text, e.Message, want)
			}
		}
		a := b.ask(question{id: "again", tokens: prompt(1, 5), options: wire.Options{MaxTokens: 5, Grammar: c.g}})
		if a.end.Err == nil || a.end.Err.Kind != wire.Invalid || a.texts[0] != "" {
			t.Errorf("%.60s: generated %q, %v", c.g.Text, a.texts[0], a.end.Err)
		}
	}
	p, err := b.Prepare(t.Context(), &wire.Request{Tokens: prompt(1, 5), Grammar: schemaOf(`{"type":"object","nullable":true}`)})
	if err != nil || !slices.Equal(p.Unenforced, []string{"/nullable"}) || p.Compile <= 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if s := b.State(); s.GrammarsFailed != 0 {
		t.Errorf("%d grammars failed", s.GrammarsFailed)
	}
}

// TestEveryKindOfGrammar: each holds answers, and refuses its own faults.
func TestEveryKindOfGrammar(t *testing.T) {
	b := newLab(t, labSetup{})
	for kind, c := range map[wire.GrammarKind]struct{ good, bad, fault string }{
		wire.GrammarObject: {"", "", ""},
		wire.GrammarSchema: {`{"enum":["a",7]}`, `{"enum":7}`, "p/enum: enum"},
		wire.GrammarRegex:  {`[a-c]{2,5}|é`, `(?<!a)b`, "p: regular expression, byte 0"},
		wire.GrammarChoice: {`["yes","no","né"]`, `[]`, "p: it must be an array of texts"},
		wire.GrammarGBNF:   {"root ::= \"a\" root | [b-d]", "root ::= x", "p: GBNF grammar, line 1: x is not defined"},
		wire.GrammarLark:   {"start: \"a\" start | %json {\"type\":\"boolean\"}", "start: x", "p: Lark grammar, line 1: x is not defined"},
	} {
		g := &wire.Grammar{Kind: kind, Text: c.good, Param: "p"}
		for seed := range uint64(5) {
			q := question{id: kind.String(), tokens: prompt(seed, 9), options: wire.Options{MaxTokens: 20, Temperature: 1, Seed: seed, Grammar: g}}
			a := b.ask(q)
			mustEnd(t, q, a)
			if !b.follows(g, a.texts[0], a.finishes[0] == wire.FinishStop) {
				t.Errorf("%v: %q", kind, a.texts[0])
			}
		}
		if c.fault == "" {
			continue
		}
		g = &wire.Grammar{Kind: kind, Text: c.bad, Param: "p"}
		if _, err := b.Prepare(t.Context(), &wire.Request{Tokens: prompt(1, 5), Grammar: g}); err == nil || !strings.HasPrefix(wire.AsError(err).Message, c.fault) {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

// TestAGrammarOverItsLimitEndsTheAnswer: it never goes on as free text.
func TestAGrammarOverItsLimitEndsTheAnswer(t *testing.T) {
	b := newLab(t, labSetup{cfg: Config{Grammar: GrammarConfig{MaskStepsMax: 1000}}})
	q := question{id: "heavy", tokens: prompt(1, 5), options: wire.Options{MaxTokens: 100, Temperature: 1,
		Grammar: schemaOf(`{"type":"string","pattern":"^([a-m]+[0-9]|[k-z]+x|(ab?c*)+){3,40}$","minLength":9}`)}}
	a := b.ask(q)
	if e := a.end.Err; e == nil || e.Kind != wire.GrammarFailed || !strings.Contains(e.Message, "more than 1000") || !strings.Contains(e.Message, "engine.grammar") {
		t.Errorf("%q: %v", a.texts[0], a.end.Err)
	}
	b.mustIdle()
	if s := b.State(); s.GrammarsFailed != 1 {
		t.Errorf("%d grammars failed", s.GrammarsFailed)
	}
}

// TestCancelWhileAGrammarIsCompiled: the generation is forgotten, and Close waits
// for the compilation.
func TestCancelWhileAGrammarIsCompiled(t *testing.T) {
	b := newLab(t, labSetup{})
	for range cap(b.grammars.slots) {
		b.grammars.slots <- struct{}{} // nothing is compiled meanwhile
	}
	q := question{id: "gone", tokens: prompt(1, 5), options: wire.Options{MaxTokens: 5, Grammar: schemaOf(`{"type":"integer"}`)}}
	s, _ := b.begin(q)
	s.Close()
	q.id = "stays"
	stays, notify := b.begin(q)
	stays.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Prepare(ctx, &wire.Request{Tokens: q.tokens, Grammar: schemaOf(`{"type":"boolean"}`)}); wire.AsError(err).Kind != wire.Canceled {
		t.Errorf("abandoned: %v", err)
	}
	for range cap(b.grammars.slots) {
		<-b.grammars.slots
	}
	stays.Resume()
	if a := b.read(stays, notify, 1); a.end.Err != nil || a.texts[0] == "" {
		t.Errorf("%q, %v", a.texts[0], a.end.Err)
	}
	b.mustIdle()
}

// TestOptionsThatEndAnAnswerEarly cannot be combined with a grammar.
func TestOptionsThatEndAnAnswerEarly(t *testing.T) {
	b := newLab(t, labSetup{})
	for param, o := range map[string]wire.Options{"stop": {Stop: []string{"x"}}, "ignore_eos": {IgnoreEOS: true}} {
		o.MaxTokens, o.Grammar = 5, schemaOf(`{}`)
		a := b.ask(question{id: param, tokens: prompt(1, 5), options: o})
		if e := a.end.Err; e == nil || e.Kind != wire.Invalid || e.Param != param {
			t.Errorf("%s: %v", param, e)
		}
	}
}

// TestReasoningBeforeAForm: what a model thinks before its answer is free, and its
// answer is held to the form.
func TestReasoningBeforeAForm(t *testing.T) {
	const thinks = toolTemplate + `{# </think> #}`
	for name, c := range map[string]struct{ template, options, text, want string }{
		"opened by the prompt": {thinks, `{"think":true}`, "so\n</think>\n\n{\"a\":true}", `(so){"a":true} stop`},
		"opened by the model":  {thinks, ``, "<think>hm < {</think>{\"a\":false}", `(hm < {){"a":false} stop`},
		"none":                 {thinks, ``, `{"a":true}`, `{"a":true} stop`},
		"no thinker":           {toolTemplate, ``, `{"a":true}`, `{"a":true} stop`},
		"a marker in the form": {thinks, ``, `{"a":true,"b":"<think>x</think>"}`, `{"a":true,"b":"<think>x</think>"} stop`},
	} {
		b := spelled(t, c.template, c.text)
		g := schemaOf(`{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false}`)
		a, err := b.converse(wire.Options{Grammar: g}, "", c.options)
		if err != nil || a.end.Err != nil {
			t.Errorf("%s: %v %v", name, err, a.end)
			continue
		}
		if got := a.shape(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	b := spelled(t, toolTemplate, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>")
	g := schemaOf(`{"type":"boolean"}`)
	if a, err := b.converse(wire.Options{Grammar: g}, weather, ""); err != nil || a.end.Err != nil || a.shape() != "|weather({}) calls" {
		t.Errorf("a call in place of the form: %v, %q", err, a.shape())
	}
	isBoolean := func(a answer) bool { return a.texts[0] == "true" || a.texts[0] == "false" }
	if a, err := b.converse(wire.Options{Grammar: g}, "", ""); err != nil || a.end.Err != nil || !isBoolean(a) {
		t.Errorf("a call without tools: %v, %q", err, a.shape())
	}
	b = spelled(t, toolTemplate, "<think>")
	if a, err := b.converse(wire.Options{Grammar: g}, "", ""); err != nil || a.end.Err != nil || !isBoolean(a) {
		t.Errorf("a model without reasoning: %v, %q", err, a.shape())
	}
}

// TestHarmonyBeforeAForm: the answer is in the final channel.
func TestHarmonyBeforeAForm(t *testing.T) {
	s := speech{found: calls.Found{Format: &calls.Format{Shape: calls.Harmony}}, calls: &calls.Bound{}}
	tokens := map[string]int32{"<|channel|>": 1, "<|message|>": 2, "<|end|>": 3, "<|start|>": 4, "<|constrain|>": 5}
	s.special = func(text string) (int32, bool) { id, ok := tokens[text]; return id, ok }
	b := grammar.NewBuilder(grammar.DefaultLimits())
	g, err := b.Compile(s.before(b, s.lead("<|start|>assistant"), b.Terminal("answer", b.Literal("{}"))))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"{}": false, "<|channel|>final<|message|>{}": true, "<|channel|>final <|constrain|>json<|message|>{}": true,
		"<|channel|>analysis<|message|>well <|end|><|start|>assistant<|channel|>final<|message|>{}": true,
		"<|channel|>analysis<|message|>{}": false, "<|channel|>commentary<|message|>{}": false,
	} {
		spelled := text
		for marker, id := range tokens {
			bytes := grammar.TokenBytes(id)
			spelled = strings.ReplaceAll(spelled, marker, string(bytes[:]))
		}
		if got, err := g.NewAutomaton().Accepts(spelled); got != want || err != nil {
			t.Errorf("%s: %v, want %v (%v)", text, got, want, err)
		}
	}
}

// TestAllow: of any mask the tokens in it keep their logits, and all others have none.
func TestAllow(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, vocabulary := range []int{1, 63, 64, 65, 1000} {
		for _, share := range []float64{0, 0.02, 0.25, 0.26, 0.5, 0.97, 1} {
			logits, mask, want := make([]float32, vocabulary), make([]uint64, (vocabulary+63)/64), 0
			for i := range logits {
				logits[i] = float32(i)
				if r.Float64() < share {
					mask[i>>6] |= 1 << (i & 63)
					want++
				}
			}
			mask[len(mask)-1] |= ^uint64(0) << ((vocabulary - 1) & 63) << 1 // bits beyond the vocabulary count for nothing
			if left := allow(logits, mask); left != want {
				t.Errorf("%d tokens, share %g: %d left, want %d", vocabulary, share, left, want)
			}
			for i, x := range logits {
				in := mask[i>>6]>>(i&63)&1 != 0
				if in && x != float32(i) || !in && !math.IsInf(float64(x), -1) {
					t.Fatalf("%d tokens, share %g: token %d in the mask: %v, logit %g", vocabulary, share, i, in, x)
				}
			}
		}
	}
}
