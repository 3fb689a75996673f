package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/engine/grammar/schema"
	"github.com/forebay-io/forebay/engine/mask"
	"github.com/forebay-io/forebay/engine/tokenizer"
)

// grammarVerdict is what grammar test says about one line.
type grammarVerdict struct {
	ID        string          `json:"id"`
	Compiled  bool            `json:"compiled"`
	Refused   *grammarRefusal `json:"refused"`
	Valid     []bool          `json:"valid"`
	Invalid   []bool          `json:"invalid"`
	Reordered int             `json:"reordered"` // instances that are accepted with their keys in another order
	CompileMS float64         `json:"compile_ms"`
	MaskUS    maskTimes       `json:"mask_us"`
}

type grammarRefusal struct {
	Pointer string `json:"pointer"`
	Keyword string `json:"keyword"`
	Reason  string `json:"reason"`
}

type maskTimes struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// grammarTest holds schemas to their instances with one tokenizer.
type grammarTest struct {
	tokenizer *tokenizer.Tokenizer
	trie      *mask.Trie
	options   schema.Options
	bits      []uint64
	masks     []float64 // microseconds of all masks
	compiles  []float64 // milliseconds of all compilations that succeeded
	sums      [2][2]int // instances: valid, invalid; of them accepted
	lines     int
	refused   int
	reordered int      // instances that are accepted in another order alone
	unread    []string // what is wrong with lines that are none
}

func runGrammarTest(c *console, args []string) error {
	set := newFlagSet("grammar test FILE.jsonl --tokenizer FILE [--json] [--strict]")
	path := set.String("tokenizer", "", "tokenizer.json, a model's folder or a GGUF file")
	lines := set.Bool("json", false, "print a line of JSON for each line, instead of a summary")
	strict := set.Bool("strict", false, "refuse words and formats that are not enforced")
	rest, err := c.parse(set, args)
	switch {
	case err != nil:
		return err
	case len(rest) != 1:
		return usageError("grammar test needs one file; write forebay " + set.Name())
	case *path == "":
		return usageError("--tokenizer is missing; write forebay " + set.Name())
	}
	t := &grammarTest{options: schema.Options{Strict: *strict}}
	if t.tokenizer, err = checkpoint.OpenTokenizer(*path); err != nil {
		return err
	}
	t.trie = mask.NewTrie(t.tokenizer)
	t.bits = make([]uint64, t.trie.Words())
	file, err := os.Open(rest[0])
	if err != nil {
		return err
	}
	defer file.Close()
	from := *c
	from.in = file
	if !*lines {
		quiet, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer quiet.Close()
		from.out = quiet
	}
	if err := from.answerLines(func(line []byte) (any, error) {
		v, err := t.line(line)
		if err != nil && !*lines {
			t.unread = append(t.unread, fmt.Sprintf("%s: line %d: %v", rest[0], t.lines, err))
		}
		return v, err
	}); err != nil {
		return err
	}
	if !*lines {
		fmt.Fprint(c.out, t.summary())
		if len(t.unread) > 0 {
			return fmt.Errorf("%d of %d lines were not read; the first: %s", len(t.unread), t.lines, t.unread[0])
		}
	}
	return nil
}

func (t *grammarTest) line(line []byte) (any, error) {
	var r struct {
		ID      string            `json:"id"`
		Schema  json.RawMessage   `json:"schema"`
		Valid   []json.RawMessage `json:"valid"`
		Invalid []json.RawMessage `json:"invalid"`
	}
	t.lines++
	const example = `{"id": "…", "schema": {…}, "valid": [instances], "invalid": [instances]}`
	if err := decodeLine(line, &r, example); err != nil {
		return nil, err
	}
	if len(r.Schema) == 0 {
		return nil, errors.New("schema is missing; a line is " + example)
	}
	v := &grammarVerdict{ID: r.ID, Valid: []bool{}, Invalid: []bool{}}
	begin := time.Now()
	b := grammar.NewBuilder(grammar.DefaultLimits())
	b.Without(t.trie.Missing())
	g, _, err := schema.Grammar(b, string(r.Schema), t.options)
	var c *mask.Compiled
	if err == nil {
		c, err = mask.Compile(g, t.trie)
	}
	v.CompileMS = float64(time.Since(begin).Microseconds()) / 1000
	if err != nil {
		t.refused++
		v.Refused = &grammarRefusal{Reason: err.Error()}
		if refusal := (*schema.Refusal)(nil); errors.As(err, &refusal) {
			v.Refused = &grammarRefusal{refusal.Pointer, refusal.Keyword, refusal.Reason}
		}
		return v, nil
	}
	v.Compiled = true
	t.compiles = append(t.compiles, v.CompileMS)
	first := len(t.masks)
	for kind, list := range [][]json.RawMessage{r.Valid, r.Invalid} {
		for _, instance := range list {
			ok, reordered, err := t.accepts(g, c, string(instance), string(r.Schema))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.ID, err)
			}
			if reordered {
				v.Reordered++
				t.reordered++
			}
			t.sums[kind][0]++
			if ok {
				t.sums[kind][1]++
			}
			if kind == 0 {
				v.Valid = append(v.Valid, ok)
			} else {
				v.Invalid = append(v.Invalid, ok)
			}
		}
	}
	own := slices.Clone(t.masks[first:])
	slices.Sort(own)
	v.MaskUS = maskTimes{rankOf(own, 0.5), rankOf(own, 0.99), rankOf(own, 1)}
	return v, nil
}

// accepts says whether an instance matches, as it is written or with its keys in another
// order: by bytes and by the tokens that the tokenizer makes of them, each allowed by the
// mask before it, the end by the last.
func (t *grammarTest) accepts(g *grammar.Grammar, c *mask.Compiled, text, schema string) (ok, reordered bool, err error) {
	auto := g.NewAutomaton()
	if ok, err = auto.Accepts(text); err == nil && !ok {
		if err = t.acceptsTokens(c, text, false); err != nil {
			return false, false, err
		}
		text, reordered, err = reorder(auto, text, schema)
		ok = reordered
	}
	if err == nil && ok {
		err = t.acceptsTokens(c, text, true)
	}
	return ok, reordered, err
}

// acceptsTokens is an error where the tokens of a text are not accepted as its bytes are.
func (t *grammarTest) acceptsTokens(c *mask.Compiled, text string, byBytes bool) error {
	ids := t.tokenizer.Encode(nil, text, tokenizer.EncodeOptions{})
	if t.tokenizer.Decode(ids) != text { // the tokenizer normalises: its tokens are another text
		return nil
	}
	byTokens, err := t.follow(c.NewMatcher(), ids)
	if err == nil && byBytes != byTokens {
		err = fmt.Errorf("%.200s: accepted by bytes %v, by tokens %v", text, byBytes, byTokens)
	}
	return err
}

func (t *grammarTest) follow(m *mask.Matcher, ids []int32) (bool, error) {
	for _, id := range ids {
		if err := t.mask(m); err != nil {
			return false, err
		}
		ok, err := m.Accept(id)
		if allowed := t.bits[id>>6]>>(id&63)&1 != 0; err == nil && ok != allowed {
			err = fmt.Errorf("token %d is accepted %v and masked %v", id, ok, !allowed)
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return m.CanEnd(), t.mask(m)
}

func (t *grammarTest) mask(m *mask.Matcher) error {
	begin := time.Now()
	err := m.Mask(t.bits)
	t.masks = append(t.masks, float64(time.Since(begin).Nanoseconds())/1000)
	return err
}

// rankOf is a quantile of sorted values.
func rankOf(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (t *grammarTest) summary() string {
	slices.Sort(t.masks)
	slices.Sort(t.compiles)
	var b strings.Builder
	fmt.Fprintf(&b, "schemas   %d, compiled %d, refused %d\n", t.lines, len(t.compiles), t.refused)
	for kind, name := range []string{"valid", "invalid"} {
		fmt.Fprintf(&b, "%-9s %d, accepted %d\n", name, t.sums[kind][0], t.sums[kind][1])
	}
	fmt.Fprintf(&b, "reordered %d: accepted with the keys in the schema's order alone\n", t.reordered)
	fmt.Fprintf(&b, "compile   p50 %.2f  p90 %.2f  p99 %.2f  max %.2f ms\n",
		rankOf(t.compiles, 0.5), rankOf(t.compiles, 0.9), rankOf(t.compiles, 0.99), rankOf(t.compiles, 1))
	fmt.Fprintf(&b, "mask      p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f µs, %d masks\n",
		rankOf(t.masks, 0.5), rankOf(t.masks, 0.9), rankOf(t.masks, 0.99), rankOf(t.masks, 0.999), rankOf(t.masks, 1), len(t.masks))
	return b.String()
}
