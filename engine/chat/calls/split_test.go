package calls

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// runes and single bytes of a text, each a piece.
func runes(text string) (pieces []string) {
	for len(text) > 0 {
		_, n := utf8.DecodeRuneInString(text)
		pieces, text = append(pieces, text[:n]), text[n:]
	}
	return pieces
}

func single(text string) (pieces []string) {
	for i := range len(text) {
		pieces = append(pieces, text[i:i+1])
	}
	return pieces
}

// sampled says that some of the many cases stand for all: with -short, and under the race
// detector, which finds nothing in a parser that belongs to one goroutine and makes it
// twenty times slower.
func sampled() bool { return testing.Short() || underRace }

// TestCorpusSplit cuts every case at every place into two, and into its
// characters and bytes: the answer is the same.
func TestCorpusSplit(t *testing.T) {
	tools := corpusTools(t)
	for i, e := range examples(t) {
		if sampled() && i%20 > 0 {
			continue
		}
		b := Lookup(e.Format).Bind(nil)
		o := Options{Tools: tools, InReasoning: e.InReasoning}
		cut := e.Expect.Finish == "length"
		whole := parse(t, b, o, cut, e.Raw)
		for at := 1; at < len(e.Raw); at++ {
			if a := parse(t, b, o, cut, e.Raw[:at], e.Raw[at:]); !a.equal(&whole) {
				t.Fatalf("%s: cut at %d:\n raw %q\n got %+v\nwant %+v", e.ID, at, e.Raw, a, whole)
			}
		}
		for _, pieces := range [][]string{runes(e.Raw), single(e.Raw)} {
			if a := parse(t, b, o, cut, pieces...); !a.equal(&whole) {
				t.Fatalf("%s: in %d pieces:\n raw %q\n got %+v\nwant %+v", e.ID, len(pieces), e.Raw, a, whole)
			}
		}
	}
}

// testIDs gives every marker of a format that stands alone a token.
func testIDs(f *Format) map[string]int32 {
	ids := map[string]int32{}
	for i, m := range f.markers() {
		if f.Shape == Tagged && !strings.HasPrefix(m, "<") || strings.HasPrefix(m, "<function") || strings.HasPrefix(m, "<parameter") ||
			m == "\n" || m == ">" || strings.HasPrefix(m, "```") || strings.HasSuffix(m, "[") || strings.Contains(m, `="`) {
			continue
		}
		ids[m] = int32(1000 + i)
	}
	return ids
}

func bindTokens(f *Format) (*Bound, map[string]int32) {
	ids := testIDs(f)
	return f.Bind(func(text string) (int32, bool) { id, ok := ids[text]; return id, ok }), ids
}

// feedTokens feeds text with its markers as tokens.
func feedTokens(t testing.TB, b *Bound, ids map[string]int32, o Options, cut bool, raw string) answer {
	p := NewParser(b, o)
	var a answer
	for len(raw) > 0 {
		_, n := utf8.DecodeRuneInString(raw)
		id := int32(7)
		for m, mid := range ids {
			if strings.HasPrefix(raw, m) && (id == 7 || len(m) > n) {
				n, id = len(m), mid
			}
		}
		a.add(t, p.Feed(id, []byte(raw[:n])))
		raw = raw[n:]
	}
	events, result := p.Finish(cut)
	a.add(t, events)
	a.result = result
	return a
}

// TestCorpusTokens feeds markers as tokens: the answer is what it is by text.
func TestCorpusTokens(t *testing.T) {
	tools := corpusTools(t)
	for _, e := range examples(t) {
		b, ids := bindTokens(Lookup(e.Format))
		e.Raw = withoutHalf(ids, e)
		a := feedTokens(t, b, ids, Options{Tools: tools, InReasoning: e.InReasoning}, e.Expect.Finish == "length", e.Raw)
		if what := e.check(&a); what != "" {
			t.Errorf("%s: %s:\n raw %q\n got %+v", e.ID, what, e.Raw, a)
		}
	}
}

// withoutHalf drops half a marker at the end of a case that was cut: a token
// comes whole or not at all.
func withoutHalf(ids map[string]int32, e example) string {
	for m := range ids {
		for n := len(m) - 1; n > 1 && e.Expect.Finish == "length"; n-- {
			if strings.HasSuffix(e.Raw, m[:n]) {
				return strings.TrimSuffix(e.Raw, m[:n])
			}
		}
	}
	return e.Raw
}

// TestMarkerTextIsText feeds the characters of markers that are tokens: all of
// it is content.
func TestMarkerTextIsText(t *testing.T) {
	tools := corpusTools(t)
	for _, f := range Formats {
		b, ids := bindTokens(f)
		for m := range ids {
			raw := "a " + m + `{"name":"ping","arguments":{}}` + m + " z"
			head := ""
			p := NewParser(b, Options{Tools: tools})
			var a answer
			if f.Shape == Harmony {
				for _, m := range []string{"<|channel|>", "final", "<|message|>"} {
					id, ok := ids[m]
					if !ok {
						id = 7
					}
					a.add(t, p.Feed(id, []byte(m)))
				}
			}
			for _, piece := range single(head + raw) {
				a.add(t, p.Feed(7, []byte(piece)))
			}
			events, result := p.Finish(false)
			a.add(t, events)
			if len(f.Tried) > 0 && strings.Contains(m, f.Tried[0]) {
				continue
			}
			if a.content != raw || result.Calls != 0 {
				t.Errorf("%s: %q became %+v", f.Name, raw, a)
			}
		}
	}
}

func cutRandomly(r *rand.Rand, text string) (pieces []string) {
	for len(text) > 0 {
		n := 1 + r.IntN(min(len(text), 9))
		pieces, text = append(pieces, text[:n]), text[n:]
	}
	return pieces
}

// mutate changes a text at a few places: a model's mistakes.
func mutate(r *rand.Rand, text string, others []example) string {
	for range 1 + r.IntN(3) {
		if len(text) < 4 {
			return text
		}
		at := r.IntN(len(text))
		to := min(len(text), at+1+r.IntN(8))
		switch r.IntN(5) {
		case 0:
			text = text[:at] + text[to:]
		case 1:
			text = text[:at] + text[at:to] + text[at:]
		case 2:
			text = text[:at]
		case 3:
			other := others[r.IntN(len(others))].Raw
			text = text[:at] + other[r.IntN(len(other)):]
		case 4:
			text = text[:at] + string("{}[]\"'\\<>|,:\n\xff=`("[r.IntN(17)]) + text[at:]
		}
	}
	return text
}

// TestMistakes feeds broken answers: none stops the parser, a split changes
// nothing, and a call that ended without a fallback has arguments in JSON.
func TestMistakes(t *testing.T) {
	tools := corpusTools(t)
	list := examples(t)
	r := rand.New(rand.NewPCG(1, 2))
	n := 6000
	if sampled() {
		n = 600
	}
	for range n {
		e := list[r.IntN(len(list))]
		raw := mutate(r, e.Raw, list)
		checkSplits(t, Lookup(e.Format), Options{Tools: tools, InReasoning: e.InReasoning}, r, raw)
	}
}

func checkSplits(t testing.TB, f *Format, o Options, r *rand.Rand, raw string) {
	for _, cut := range []bool{false, true} {
		b := f.Bind(nil)
		whole := parse(t, b, o, cut, raw)
		if a := parse(t, b, o, cut, single(raw)...); !a.equal(&whole) {
			t.Fatalf("%s: by bytes:\n raw %q\n got %+v\nwant %+v", f.Name, raw, a, whole)
		}
		if a := parse(t, b, o, cut, cutRandomly(r, raw)...); !a.equal(&whole) {
			t.Fatalf("%s: in pieces:\n raw %q\n got %+v\nwant %+v", f.Name, raw, a, whole)
		}
		open := 0
		for _, c := range whole.calls {
			if !c.ended {
				open++
			}
		}
		if open > 1 || open == 1 && !whole.result.Open {
			t.Fatalf("%s: %d calls without an end:\n raw %q\n got %+v", f.Name, open, raw, whole)
		}
	}
}

// fuzz feeds any text to the formats of a shape.
func fuzz(f *testing.F, shape Shape) {
	tools := corpusTools(f)
	for i, e := range examples(f) {
		if i%8 == 0 && Lookup(e.Format).Shape == shape {
			f.Add(e.Raw, uint64(i), e.InReasoning)
		}
	}
	f.Fuzz(func(t *testing.T, raw string, seed uint64, inReasoning bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		for _, format := range Formats {
			if format.Shape != shape {
				continue
			}
			o := Options{Tools: tools, InReasoning: inReasoning, Certain: seed%5 == 0, Limits: Limits{HeldBytes: 64, NameBytes: 24, Depth: 8, Calls: 4}}
			checkSplits(t, format, o, r, raw)
			checkMemory(t, format, o, raw)
		}
	})
}

// checkMemory feeds raw many times over: what the parser keeps is bounded.
func checkMemory(t testing.TB, f *Format, o Options, raw string) {
	p := NewParser(f.Bind(nil), o)
	for range 40 {
		for _, piece := range single(raw) {
			p.Feed(-1, []byte(piece))
			kept := len(p.buf) + len(p.block.raw) + len(p.block.call.held) + len(p.block.trial.bytes) + len(p.head) + len(p.block.value.word) + len(p.block.value.opened)
			if kept > 4000 {
				t.Fatalf("%s keeps %d bytes of %q", f.Name, kept, raw)
			}
		}
	}
}

func FuzzJSONCalls(f *testing.F) { fuzz(f, JSONCalls) }
func FuzzNamed(f *testing.F)     { fuzz(f, Named) }
func FuzzTagged(f *testing.F)    { fuzz(f, Tagged) }
func FuzzPythonic(f *testing.F)  { fuzz(f, Pythonic) }
func FuzzBraces(f *testing.F)    { fuzz(f, Braces) }
func FuzzHarmony(f *testing.F)   { fuzz(f, Harmony) }

// TestNoAllocation feeds text, reasoning and long arguments in pieces, as they
// come token by token.
func TestNoAllocation(t *testing.T) {
	if testing.Short() {
		t.Skip("counts allocations")
	}
	for _, c := range []struct{ format, head, piece string }{
		{"hermes", "", "some text "},
		{"hermes", "<think>", "some thought "},
		{"hermes", `<tool_call>{"name":"write_note","arguments":{"title":"`, `text with \"quotes\" `},
		{"mistral-v11", `[TOOL_CALLS]write_note[ARGS]{"title":"`, `text `},
		{"qwen3-coder", "<tool_call>\n<function=write_note>\n<parameter=title>\n", "text \"quoted\" \n"},
		{"glm-4.5", "<tool_call>write_note\n<arg_key>title</arg_key>\n<arg_value>", "text \"quoted\" \n"},
		{"functiongemma", "<start_function_call>call:write_note{title:<escape>", "text "},
		{"pythonic", "<|python_start|>[write_note(title='", `text \n `},
		{"harmony", "<|channel|>analysis<|message|>", "text "},
	} {
		p := NewParser(Lookup(c.format).Bind(nil), Options{Tools: corpusTools(t)})
		p.Feed(-1, []byte(c.head))
		piece := []byte(c.piece)
		bytes := 0
		for range 100 {
			for _, e := range p.Feed(-1, piece) {
				bytes += len(e.Text)
			}
		}
		if bytes == 0 {
			t.Errorf("%s: nothing came of %q", c.format, c.head)
		}
		if n := testing.AllocsPerRun(200, func() { p.Feed(-1, piece) }); n > 0 {
			t.Errorf("%s after %q: %g allocations for each piece", c.format, c.head, n)
		}
	}
}

// TestMistakesOfModels are answers that models are known to write.
func TestMistakesOfModels(t *testing.T) {
	tools := corpusTools(t)
	for _, c := range []struct{ name, format, raw, want string }{
		{"a bracket is missing", "hermes", `<tool_call>{"name":"ping","arguments":{"a":1}</tool_call>`, `ping{"a":1}.`},
		{"one bracket too many", "hermes", `<tool_call>{"name":"ping","arguments":{"a":1}}}</tool_call>`, `ping{"a":1}.`},
		{"a list cut by its marker", "hermes", `<tool_call>{"name":"ping","arguments":{"a":[1,2</tool_call> ok`, `ping{"a":[1,2]}. ok`},
		{"arguments in a string", "hermes", `<tool_call>{"name":"ping","arguments":"{\"a\":\"\\u00e9\"}"}</tool_call>`, `ping{"a":"\u00e9"}.`},
		{"arguments null", "hermes", `<tool_call>{"name":"ping","arguments":null}</tool_call>`, `ping{}.`},
		{"no arguments", "hermes", `<tool_call>{"name":"ping"}</tool_call>`, `ping{}.`},
		{"a line end in a string", "hermes", "<tool_call>{\"name\":\"ping\",\"arguments\":{\"a\":\"x\ny\"}}</tool_call>", `ping{"a":"x\ny"}.`},
		{"function as wrapper", "hermes", `<tool_call>{"type":"function","function":{"name":"ping","arguments":{}}}</tool_call>`, `ping{}.`},
		{"a tool that is not there", "hermes", `<tool_call>{"name":"nobody","arguments":{}}</tool_call>`, `nobody{}.`},
		{"prose about the marker", "hermes", `Write <tool_call> first.`, `Write <tool_call> first.`},
		{"two in one block", "hermes", "<tool_call>{\"name\":\"ping\"}\n{\"name\":\"ping\"}</tool_call>", `ping{}.ping{}.`},
		{"no outer tag", "qwen3-coder", "Now:\n<function=set_code>\n<parameter=code>\n1\n</parameter>\n</function>\n</tool_call>", `Now:set_code{"code":"1"}.`},
		{"a call in reasoning", "qwen3-coder", "<think>Let me see.\n<tool_call>\n<function=ping>\n</function>\n</tool_call>", `(Let me see.)ping{}.`},
		{"a tag in reasoning", "qwen3-coder", "<think>I use <tool_call> now.</think>ok", `(I use <tool_call> now.)ok`},
		{"Python's constants", "qwen3-coder", "<tool_call><function=write_note><parameter=pinned>True</parameter></function></tool_call>", `write_note{"pinned":true}.`},
		{"Python's list", "qwen3-coder", "<tool_call><function=grep-files><parameter=paths>['a', 'b']</parameter></function></tool_call>", `grep-files{"paths":["a","b"]}.`},
		{"null where it may be", "qwen3-coder", "<tool_call><function=grep-files><parameter=max>None</parameter></function></tool_call>", `grep-files{"max":null}.`},
		{"an argument that no schema has", "glm-4.5", "<tool_call>ping<arg_key>x</arg_key><arg_value>007</arg_value><arg_key>y</arg_key><arg_value>7</arg_value></tool_call>", `ping{"x":"007","y":7}.`},
		{"places for names", "pythonic", "[set_code('x', 7)]", `set_code{"code":"x","door":7}.`},
		{"Python's numbers", "pythonic", "[mix_paint(parts=[.5, 1_000, 5.], litres=+2)]", `mix_paint{"parts":[0.5,1000,5],"litres":2}.`},
		{"a tuple and three quotes", "pythonic", `[mix_paint(parts=(1, 2,), litres="""a"b""")]`, `mix_paint{"parts":[1,2],"litres":"a\"b"}.`},
		{"text after a bare call", "pythonic", "[ping()] is a call", "[ping()] is a call"},
		{"one call unknown", "llama3-json", `{"name":"ping","parameters":{}}; {"name":"nobody","parameters":{}}`, `{"name":"ping","parameters":{}}; {"name":"nobody","parameters":{}}`},
		{"code that is no call", "pythonic", "```tool_code\nprint(1)\n```", "```tool_code\nprint(1)\n```"},
		{"the older shape", "mistral-v11", `[TOOL_CALLS][{"name":"ping","arguments":{}}]`, `ping{}.`},
		{"no marker before the arguments", "mistral-v11", `[TOOL_CALLS]ping{"a":1}`, `ping{"a":1}.`},
		{"no fence", "deepseek-v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n{\"a\":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", `ping{"a":1}.`},
		{"text without a header", "harmony", "Just text.", "Just text."},
		{"a call's words in prose", "harmony", "<|channel|>commentary<|message|>to=functions.ping<|end|>", "to=functions.ping"},
		{"a preamble and an answer", "harmony", "<|channel|>commentary<|message|>One.<|end|><|start|>assistant<|channel|>final<|message|>Two.<|return|>", "One.\n\nTwo."},
		{"attributes say the type", "deepseek-v3.2", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"set_code\">\n<｜DSML｜parameter name=\"code\" string=\"true\">7</｜DSML｜parameter>\n<｜DSML｜parameter name=\"door\" string=\"false\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", `set_code{"code":"7","door":7}.`},
		{"invoke", "minimax-m2", "<minimax:tool_call>\n<invoke name=\"set_code\">\n<parameter name=\"code\">7</parameter>\n</invoke>\n</minimax:tool_call>", `set_code{"code":"7"}.`},
	} {
		a := parse(t, Lookup(c.format).Bind(nil), Options{Tools: tools}, false, c.raw)
		got := ""
		if a.reasoning != "" {
			got = "(" + a.reasoning + ")"
		}
		if len(a.calls) == 0 || strings.HasPrefix(c.want, "Now") {
			got += a.content
		}
		for _, call := range a.calls {
			end := "."
			if !call.ended {
				end = "…"
			}
			got += fmt.Sprint(call.name, call.args, end)
		}
		if len(a.calls) > 0 && !strings.HasPrefix(c.want, "Now") {
			got += a.content
		}
		if got != c.want {
			t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.raw, got, c.want)
		}
		checkSplits(t, Lookup(c.format), Options{Tools: tools}, rand.New(rand.NewPCG(3, 4)), c.raw)
	}
}
