package tools

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/engine/grammar/schema"
	"github.com/forebay-io/forebay/engine/mask"
)

// vocabulary has every byte, some longer tokens, the markers, and an end token.
type vocabulary struct {
	texts   []string
	control int // ids from here are markers
}

func newVocabulary(markers []string) *vocabulary {
	v := &vocabulary{}
	for i := range 256 {
		v.texts = append(v.texts, string([]byte{byte(i)}))
	}
	v.texts = append(v.texts, "\": ", "\", \"", "{\"", "\"}", "the", " a", "</", "<tool", "é", "null", "12")
	v.control = len(v.texts)
	v.texts = append(v.texts, markers...)
	v.texts = append(v.texts, "END")
	return v
}

func (v *vocabulary) Size() int               { return len(v.texts) }
func (v *vocabulary) IsControl(id int32) bool { return int(id) >= v.control }
func (v *vocabulary) IsEnd(id int32) bool     { return int(id) == len(v.texts)-1 }
func (v *vocabulary) Bytes(id int32) []byte {
	if v.IsControl(id) {
		return nil
	}
	return []byte(v.texts[id])
}

func (v *vocabulary) token(text string) (int32, bool) {
	for i := v.control; i < len(v.texts)-1; i++ {
		if v.texts[i] == text {
			return int32(i), true
		}
	}
	return 0, false
}

// markersOf are the texts of a format that its models have as tokens.
func markersOf(f *calls.Format) (list []string) {
	for _, all := range [][]string{f.Open, f.Close, f.Drop, f.NameEnd, f.Tokens, {f.ThinkOpen, f.ThinkClose, f.IDMark, f.ArgsMark, f.Escape}} {
		for _, text := range all {
			if strings.HasPrefix(text, "<") || strings.HasPrefix(text, "[") || strings.HasPrefix(text, "｜") {
				list = append(list, text)
			}
		}
	}
	if f.Shape == calls.Harmony {
		list = []string{"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"}
	}
	return list
}

const toolSet = `[{"type":"function","function":{"name":"paint","parameters":{"type":"object","properties":{"who":{"type":"string"},"n":{"type":"integer"},
	"x":{"type":"number","minimum":0},"yes":{"type":"boolean"},"parts":{"type":"array","items":{"type":"string"},"maxItems":3},
	"deep":{"type":"object","properties":{"p":{"enum":["a","b"]}},"required":["p"],"additionalProperties":false},"mode":{"enum":["slow","fast"]},"maybe":{"type":["string","null"]}},"required":["who","n"],"additionalProperties":false}}},
	{"type":"function","function":{"name":"look-up_2"}},
	{"type":"function","function":{"name":"code","parameters":{"type":"object","properties":{"code":{"$ref":"#/$defs/line"}},"required":["code"],"$defs":{"line":{"type":"string","pattern":"^[A-Z]{3}$"}}}}}]`

// answerer draws random answers of a grammar.
type answerer struct {
	v *vocabulary
	c *mask.Compiled
}

func newAnswerer(t testing.TB, f *calls.Bound, v *vocabulary, build func(b *grammar.Builder) grammar.Expr) *answerer {
	t.Helper()
	b := grammar.NewBuilder(grammar.DefaultLimits())
	trie := mask.NewTrie(v)
	b.Without(trie.Missing())
	g, err := b.Compile(build(b))
	if err != nil {
		t.Fatalf("%s: %v", f.Name, err)
	}
	c, err := mask.Compile(g, trie)
	if err != nil {
		t.Fatalf("%s: %v", f.Name, err)
	}
	return &answerer{v, c}
}

// draw feeds a random answer to read, and reports whether it ended by itself.
func (a *answerer) draw(t testing.TB, r *rand.Rand, read func(id int32)) (text string, ended bool) {
	m := a.c.NewMatcher()
	set := make([]uint64, m.Words())
	for n := range 1500 {
		if m.Done() {
			return text, true
		}
		if err := m.Mask(set); err != nil {
			t.Fatal(err)
		}
		var may, closers []int32
		for id := range int32(a.v.Size()) {
			if set[id>>6]>>(id&63)&1 == 0 {
				continue
			}
			may = append(may, id)
			if a.v.IsControl(id) || strings.ContainsAny(a.v.texts[id], `"}])<`+"\n") {
				closers = append(closers, id)
			}
		}
		if len(may) == 0 {
			t.Fatalf("a dead end after %q", text)
		}
		from := may
		if len(closers) > 0 && r.IntN(100) < 25+n/2 {
			from = closers
		}
		id := from[r.IntN(len(from))]
		if ok, err := m.Accept(id); !ok || err != nil {
			t.Fatalf("%q is in the mask and not accepted after %q: %v", a.v.texts[id], text, err)
		}
		if a.v.IsEnd(id) {
			return text, true
		}
		text += a.v.texts[id]
		read(id)
	}
	return text, false
}

// TestRandomCallsParse: what a grammar allows, the parser reads without a fallback, for
// every format, with markers as tokens and as text. FOREBAY_TEST_DRAWS sets how many
// answers are drawn for each.
func TestRandomCallsParse(t *testing.T) {
	draws := 12
	if text := os.Getenv("FOREBAY_TEST_DRAWS"); text != "" {
		if _, err := fmt.Sscan(text, &draws); err != nil {
			t.Fatal(err)
		}
	}
	list := calls.ReadTools(json.RawMessage(toolSet))
	ended := 0
	for _, format := range calls.Formats {
		for _, markers := range [][]string{nil, markersOf(format)} {
			v := newVocabulary(markers)
			f := format.Bind(v.token)
			a := newAnswerer(t, f, v, func(b *grammar.Builder) grammar.Expr {
				r, err := Compile(b, f, Options{Tools: list, Most: 3, Schema: schema.Options{OneLine: markers != nil}})
				if err != nil {
					t.Fatalf("%s: %v", f.Name, err)
				}
				return r.Calls
			})
			for i := range draws {
				r := rand.New(rand.NewPCG(uint64(i), uint64(len(markers))))
				p := calls.NewParser(f, calls.Options{Tools: list, Certain: true})
				got := map[int]*strings.Builder{}
				names := map[int]string{}
				take := func(events []calls.Event) {
					for _, e := range events {
						switch e.Kind {
						case calls.CallStart:
							got[e.Index], names[e.Index] = &strings.Builder{}, e.Name
						case calls.Args:
							got[e.Index].Write(e.Text)
						case calls.Content, calls.Reasoning:
							if strings.TrimSpace(string(e.Text)) != "" {
								t.Errorf("%s: content %q", f.Name, e.Text)
							}
						}
					}
				}
				text, whole := a.draw(t, r, func(id int32) { take(p.Feed(id, v.Bytes(id))) })
				events, result := p.Finish(!whole)
				take(events)
				if result.Fallbacks > 0 || whole && (result.Open || result.Ended == 0 || result.Ended != result.Calls) {
					t.Fatalf("%s: %+v of %q", f.Name, result, text)
				}
				if !whole {
					continue
				}
				ended++
				for n, arguments := range got {
					check(t, f.Name, names[n], arguments.String(), text)
				}
			}
		}
	}
	if want := draws * len(calls.Formats) * 2 * 7 / 10; ended < want {
		t.Errorf("only %d answers ended; want %d", ended, want)
	}
}

// check holds arguments to what the schemas say.
func check(t *testing.T, format, name, arguments, text string) {
	t.Helper()
	var got map[string]any
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber() // 1E495 is JSON
	if err := d.Decode(&got); err != nil || !json.Valid([]byte(arguments)) {
		t.Fatalf("%s: %s(%s): %v of %q", format, name, arguments, err, text)
	}
	if name == "code" {
		code, _ := got["code"].(string)
		if len(code) != 3 || strings.ToUpper(code) != code {
			t.Errorf("%s: %s(%s) of %q", format, name, arguments, text)
		}
	}
	if name != "paint" {
		return
	}
	_, who := got["who"].(string)
	n, isNumber := got["n"].(json.Number)
	mode, hasMode := got["mode"]
	deep, hasDeep := got["deep"].(map[string]any)
	if !who || !isNumber || strings.ContainsAny(n.String(), ".eE") || hasMode && mode != "slow" && mode != "fast" || hasDeep && deep["p"] != "a" && deep["p"] != "b" {
		t.Errorf("%s: %s(%s) of %q", format, name, arguments, text)
	}
}
