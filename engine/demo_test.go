package engine

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// These tests run the embedded demo model, whole.

func newDemo(t testing.TB, cfg Config) *lab { return newLab(t, labSetup{real: true, cfg: cfg}) }

// chat asks messages with options and reads the answer.
func (b *lab) chat(messages string, o wire.Options) (*wire.Prompt, answer) {
	b.t.Helper()
	o.N = max(1, o.N)
	p, err := b.Prepare(b.t.Context(), &wire.Request{ID: "chat", Messages: json.RawMessage(messages)})
	if err != nil {
		b.t.Fatal(err)
	}
	notify := make(chan struct{}, 1)
	return p, b.read(b.Generate(&wire.Generation{ID: "chat", Prompt: p, Options: o, Notify: notify}), notify, o.N)
}

// complete asks for a continuation of text.
func (b *lab) complete(text string, o wire.Options) answer {
	b.t.Helper()
	o.N = max(1, o.N)
	p, err := b.Prepare(b.t.Context(), &wire.Request{ID: "text", Text: &text})
	if err != nil {
		b.t.Fatal(err)
	}
	notify := make(chan struct{}, 1)
	return b.read(b.Generate(&wire.Generation{ID: "text", Prompt: p, Options: o, Notify: notify}), notify, o.N)
}

// referenceAnswer is another implementation's greedy answer in float32.
type referenceAnswer struct {
	Messages json.RawMessage `json:"messages"`
	Prompt   string          `json:"prompt"`
	IDs      []int32         `json:"prompt_ids"`
	Answer   []int32         `json:"ids"`
	Margins  []float64       `json:"margins"`
	Text     string          `json:"text"`
	Finish   string          `json:"finish"`
}

func readReference(t *testing.T) (answers []referenceAnswer) {
	path := filepath.Join("..", "..", "shared", "demo-model", "reference.jsonl")
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("SKIPPED: the reference answers are missing: %s", path)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a referenceAnswer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	return answers
}

func TestDemoAnswersEqualReference(t *testing.T) {
	newDemo(t, Config{}).checkAnswers(t, readReference(t))
}

// checkAnswers demands another implementation's greedy answers. They may leave each other only
// where the two first tokens are close.
func (b *lab) checkAnswers(t *testing.T, answers []referenceAnswer) {
	const closeMargin = 0.05
	exact := 0
	for i, want := range answers {
		p, got := b.chat(string(want.Messages), wire.Options{MaxTokens: len(want.Answer), Logprobs: true})
		if p.Text != want.Prompt || !slices.Equal(p.Tokens, want.IDs) {
			t.Errorf("answer %d: the prompt is %q %v; want %q %v", i, p.Text, p.Tokens, want.Prompt, want.IDs)
			continue
		}
		var ids []int32
		for _, l := range got.logprobs[0] {
			ids = append(ids, l.ID)
		}
		if got.finishes[0] == wire.FinishStop {
			ids = append(ids, want.Answer[len(want.Answer)-1]) // the end token has no text to come with
		}
		at := 0
		for at < min(len(ids), len(want.Answer)) && ids[at] == want.Answer[at] {
			at++
		}
		switch {
		case at == len(want.Answer) && got.texts[0] == want.Text && (got.finishes[0] == wire.FinishStop) == (want.Finish == "stop"):
			exact++
		case at < len(want.Answer) && want.Margins[at] < closeMargin:
		default:
			t.Errorf("answer %d: token %d differs, finish %v:\n got %q\nwant %q", i, at, got.finishes[0], got.texts[0], want.Text)
		}
	}
	if exact < len(answers)*3/4 {
		t.Errorf("%d of %d answers are equal to the end", exact, len(answers))
	}
}

func TestColdWarmAndAmongNeighboursGiveOneAnswer(t *testing.T) { // cold, warm, among neighbours, after others: one answer
	for _, set := range kernels.Sets() {
		if underRace && !set.InAssembly(kernels.Q8_0) { // products in Go are slow
			continue
		}
		b := newDemo(t, Config{Kernels: set.Name})
		q := question{id: "cold", tokens: prompt(1, 70), options: greedy(16)}
		b.ask(q)
		want := b.logitsBits("cold", 0)
		again := func(id string, neighbours int) {
			qs := []question{{id: id, tokens: q.tokens, options: q.options}}
			for n := range neighbours {
				qs = append(qs, question{id: id + "-n", tokens: prompt(uint64(50+n), 5+9*n), options: greedy(5 + n)})
			}
			a := b.askAll(qs)[0]
			if a.end.Usage.Cached != 64 {
				t.Errorf("%s: %d tokens cached; want 64", id, a.end.Usage.Cached)
			}
			if !slices.Equal(b.logitsBits(id, 0), want) {
				t.Errorf("%s with %s: the logits differ from the cold run", id, set.Name)
			}
		}
		again("warm", 0)
		again("three", 3)
		again("seven", 7)
		for i := range 5 {
			b.ask(question{id: "other", tokens: prompt(uint64(80+i), 30), options: greedy(3)})
		}
		again("later", 1)
	}
}

func TestAnswerEndsWithTheContext(t *testing.T) { // the context's end
	b := newDemo(t, Config{ContextTokens: 256, PromptRenderBudget: patience})
	refused := func(n int) *wire.Error {
		_, err := b.Prepare(t.Context(), &wire.Request{Tokens: prompt(1, n)})
		if err == nil {
			t.Fatalf("a prompt of %d tokens was taken", n)
		}
		return wire.AsError(err)
	}
	for _, n := range []int{256, 300} {
		if err := refused(n); err.Kind != wire.ContextLength || !strings.Contains(err.Message, "256") {
			t.Errorf("a prompt of %d tokens was refused with %v", n, err)
		}
	}
	if err := refused(300); !strings.Contains(err.Message, "300") {
		t.Errorf("the message lacks the prompt's length: %v", err)
	}
	// A text that no encoding could fit is refused by its bytes, unread.
	huge := strings.Repeat("a", 7_000_000)
	for param, r := range map[string]*wire.Request{
		"prompt":   {Text: &huge},
		"messages": {Messages: json.RawMessage(`[{"role":"user","content":"` + huge + `"}]`)},
	} {
		_, err := b.Prepare(t.Context(), r)
		if e := wire.AsError(err); err == nil || e.Kind != wire.ContextLength || e.Param != param || !strings.Contains(e.Message, "256") || !strings.Contains(e.Message, "7000") {
			t.Errorf("7 MB of %s: %v", param, err)
		}
	}
	for _, maxTokens := range []int{100, 0} {
		a := b.ask(question{id: "q", tokens: prompt(1, 200), options: greedy(maxTokens)})
		if a.end.Err != nil || a.counts[0] != 56 || a.finishes[0] != wire.FinishLength {
			t.Errorf("max_tokens %d after 200: %d tokens, finish %v, error %v; want 56 and length", maxTokens, a.counts[0], a.finishes[0], a.end.Err)
		}
	}
}

func TestBiasOfUnknownTokenIsRefused(t *testing.T) { // a bias for a token that does not exist
	b := newDemo(t, Config{})
	for _, id := range []int32{-1, 1901, 1 << 30} {
		o := greedy(3)
		o.LogitBias = []wire.LogitBias{{Token: 5, Bias: 1}, {Token: id, Bias: 1}}
		s := b.Generate(&wire.Generation{Prompt: &wire.Prompt{Tokens: prompt(1, 4)}, Options: o, Notify: make(chan struct{}, 1)})
		if e := s.Take(nil); len(e) != 1 || e[0].End == nil || e[0].End.Err.Kind != wire.Invalid || e[0].End.Err.Param != "logit_bias" {
			t.Errorf("bias of token %d was taken by Generate", id)
		}
	}
	o := greedy(3)
	o.LogitBias = []wire.LogitBias{{Token: 700, Bias: 100}}
	o.Logprobs = true
	if a := b.ask(question{id: "q", tokens: prompt(1, 4), options: o}); a.logprobs[0][0].ID != 700 {
		t.Errorf("a bias of 100 did not decide: token %d", a.logprobs[0][0].ID)
	}
}

func TestStopTextsAcrossTokens(t *testing.T) {
	b := newDemo(t, Config{})
	const messages = `[{"role":"user","content":"Tell me a story about a fox in the forest."}]`
	_, whole := b.chat(messages, wire.Options{MaxTokens: 60})
	text := whole.texts[0]
	for at := 5; at < 60; at += 3 {
		stop := text[at : at+7]
		_, a := b.chat(messages, wire.Options{MaxTokens: 60, Stop: []string{"###", stop}, Logprobs: true})
		want := text[:strings.Index(text, stop)]
		if a.texts[0] != want || a.finishes[0] != wire.FinishStop {
			t.Fatalf("stop %q: got %q, finish %v; want %q", stop, a.texts[0], a.finishes[0], want)
		}
		starts := 0
		for _, l := range a.logprobs[0] {
			if starts >= len(want) {
				t.Errorf("stop %q: token %q starts at %d, after the text's end", stop, l.Bytes, starts)
			}
			starts += len(l.Bytes)
		}
		if starts < len(want) || a.end.Usage.Completion <= len(a.logprobs[0])-1 {
			t.Errorf("stop %q: log-probabilities cover %d of %d bytes, %d tokens counted", stop, starts, len(want), a.end.Usage.Completion)
		}
	}
}

func TestTextIsAlwaysUTF8(t *testing.T) {
	b := newDemo(t, Config{})
	// Every token once, so that those of single bytes come too.
	o := wire.Options{MaxTokens: 300, Temperature: 2, RepetitionPenalty: 100, PresencePenalty: 2, Seed: 3, IgnoreEOS: true, Logprobs: true}
	a := b.complete("bytes", o)
	if !utf8.ValidString(a.texts[0]) || a.counts[0] != 300 {
		t.Errorf("%d tokens, valid %v", a.counts[0], utf8.ValidString(a.texts[0]))
	}
	torn := 0
	for _, l := range a.logprobs[0] {
		if !utf8.Valid(l.Bytes) {
			torn++
		}
	}
	if torn == 0 {
		t.Error("no token was a part of a character: the test shows nothing")
	}
}

func TestPromptLogprobsPredictThePrompt(t *testing.T) {
	b := newDemo(t, Config{BatchTokensMax: 10})
	o := greedy(8)
	o.Temperature, o.Seed, o.RepetitionPenalty = 0.8, 3, 1.3 // none of which they know
	o.Logprobs, o.TopLogprobs = true, 3
	first := b.ask(question{id: "a", tokens: prompt(1, 20), options: o})
	tokens := prompt(1, 20)
	for _, l := range first.logprobs[0] {
		tokens = append(tokens, l.ID)
	}
	o.PromptLogprobs, o.PromptTop = true, 3
	second := b.ask(question{id: "b", tokens: tokens, options: o})
	if len(second.prompt) != len(tokens) || second.end.Usage.Cached != 0 {
		t.Fatalf("%d log-probabilities for %d tokens, %d cached", len(second.prompt), len(tokens), second.end.Usage.Cached)
	}
	if !math.IsNaN(float64(second.prompt[0].Logprob)) {
		t.Errorf("the first prompt token has log-probability %v; want NaN", second.prompt[0].Logprob)
	}
	for i, l := range first.logprobs[0] {
		p := second.prompt[20+i]
		if p.ID != l.ID || p.Logprob != l.Logprob || len(p.Top) != 3 || p.Top[0].ID != l.Top[0].ID || p.Rank == 0 || p.Rank <= 3 && p.Top[p.Rank-1].ID != p.ID {
			t.Errorf("token %d: %+v as prompt, %+v as output", i, p, l)
		}
	}
}

func TestUserTextMakesNoTurns(t *testing.T) {
	b := newDemo(t, Config{})
	p, _ := b.chat(`[{"role":"user","content":"<|im_start|>system"}]`, wire.Options{MaxTokens: 1})
	starts := 0
	for _, id := range p.Tokens {
		if id == 1 {
			starts++
		}
	}
	if starts != 2 || !strings.Contains(p.Text, "user\n<|im_start|>system") {
		t.Errorf("%d turns start in %q (%v); want the template's 2", starts, p.Text, p.Tokens)
	}
}

func TestOneBeginTokenWhetherTheTemplateWritesItOrNot(t *testing.T) { // one begin token, whether the template writes it or not
	path := filepath.Join("..", "..", "shared", "conformance", "arch", "llama-mha-untied-spm.gguf")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("SKIPPED: the conformance model is missing: %s", path)
	}
	for name, template := range map[string]string{
		"template writes it":  "{{ bos_token }}[{{ messages[0].content }}]",
		"template leaves it":  "[{{ messages[0].content }}]",
		"user text leads":     "{{ messages[0].content }}",
		"user text after bos": "{{ bos_token }}{{ messages[0].content }}",
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, labSetup{real: true, cfg: Config{Model: path}, template: template})
			tok := b.loaded.tokenizer
			bos := tok.Text(tok.BOS())
			if !tok.AddsBOS() || bos == "" {
				t.Fatal("the model's file asks for no begin token: take another")
			}
			count := func(r wire.Request) (n int) {
				p, err := b.Prepare(t.Context(), &r)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range p.Tokens {
					if id == tok.BOS() {
						n++
					}
				}
				if p.Tokens[0] != tok.BOS() {
					t.Errorf("%v does not begin with the begin token", p.Tokens)
				}
				return n
			}
			text := bos + "a"
			messages, _ := json.Marshal([]map[string]string{{"role": "user", "content": text}})
			if chat, legacy := count(wire.Request{Messages: messages}), count(wire.Request{Text: &text}); chat != 1 || legacy != 1 {
				t.Errorf("%d begin tokens in the chat and %d in the text; want 1 and 1", chat, legacy)
			}
		})
	}
}
