package calls

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

const corpus = "../../../../shared/conformance/toolcalls/"

// example is a line of the corpus.
type example struct {
	ID, Format, Raw string
	InReasoning     bool `json:"in_reasoning"`
	Expect          struct {
		Reasoning, Content *string
		Calls              []struct {
			Name, ID  string
			Arguments json.RawMessage
			Partial   bool
		}
		Finish string
	}
}

func corpusTools(t testing.TB) []Tool {
	t.Helper()
	data, err := os.ReadFile(corpus + "tools.json")
	if err != nil {
		t.Skip("test data is missing: " + corpus)
	}
	var sets map[string]json.RawMessage
	if err := json.Unmarshal(data, &sets); err != nil {
		t.Fatal(err)
	}
	return ReadTools(sets["a"])
}

func examples(t testing.TB) (list []example) {
	t.Helper()
	f, err := os.Open(corpus + "cases.jsonl")
	if err != nil {
		t.Skip("test data is missing: " + corpus)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e example
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// gotCall is a call as a client puts it together.
type gotCall struct {
	name, id, args string
	ended          bool
}

// answer is what a client gets.
type answer struct {
	reasoning, content string
	calls              []gotCall
	result             Result
}

func (a *answer) add(t testing.TB, events []Event) {
	for _, e := range events {
		switch e.Kind {
		case Reasoning:
			a.reasoning += string(e.Text)
		case Content:
			a.content += string(e.Text)
		case CallStart:
			if e.Index != len(a.calls) || e.Name == "" || e.ID == "" {
				t.Fatalf("call %d begins as %d with name %q and id %q", len(a.calls), e.Index, e.Name, e.ID)
			}
			a.calls = append(a.calls, gotCall{name: e.Name, id: e.ID})
		case Args, CallEnd:
			if e.Index != len(a.calls)-1 || a.calls[e.Index].ended {
				t.Fatalf("event %d of call %d, which is not the open one of %d", e.Kind, e.Index, len(a.calls))
			}
			a.calls[e.Index].args += string(e.Text)
			a.calls[e.Index].ended = e.Kind == CallEnd
		}
	}
}

func parse(t testing.TB, b *Bound, o Options, cut bool, pieces ...string) answer {
	p := NewParser(b, o)
	var a answer
	for _, piece := range pieces {
		a.add(t, p.Feed(-1, []byte(piece)))
	}
	events, result := p.Finish(cut)
	a.add(t, events)
	a.result = result
	return a
}

func (a *answer) equal(b *answer) bool {
	if a.reasoning != b.reasoning || a.content != b.content || len(a.calls) != len(b.calls) || a.result != b.result {
		return false
	}
	for i := range a.calls {
		if a.calls[i] != b.calls[i] {
			return false
		}
	}
	return true
}

// check compares an answer with what the corpus expects.
func (e *example) check(a *answer) string {
	same := func(want *string, got string) bool {
		return want == nil && got == "" || want != nil && strings.TrimSpace(*want) == strings.TrimSpace(got) && got != ""
	}
	switch {
	case !same(e.Expect.Reasoning, a.reasoning):
		return "reasoning"
	case !same(e.Expect.Content, a.content):
		return "content"
	case len(e.Expect.Calls) != len(a.calls):
		return "number of calls"
	case (e.Expect.Finish == "length") != a.result.Open:
		return "finish"
	case a.result.Fallbacks > 0 && e.Expect.Finish != "stop":
		return "fallbacks"
	}
	for i, want := range e.Expect.Calls {
		got := a.calls[i]
		switch {
		case want.Name != got.name:
			return "name"
		case want.ID != "" && want.ID != got.id:
			return "id"
		case want.Partial != !got.ended:
			return "end"
		}
		if !want.Partial && canonical(want.Arguments) != canonical([]byte(got.args)) {
			return "arguments"
		}
		if want.Partial && !jsonPrefix(got.args) {
			return "partial arguments"
		}
	}
	return ""
}

// canonical is JSON with its keys in order and its numbers as written.
func canonical(data []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		return "invalid: " + string(data)
	}
	d := json.NewDecoder(&b)
	d.UseNumber()
	var out strings.Builder
	for {
		token, err := d.Token()
		if err != nil {
			return out.String()
		}
		text, _ := json.Marshal(token)
		out.Write(text)
		out.WriteByte(' ')
	}
}

// jsonPrefix reports whether text begins some JSON value.
func jsonPrefix(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); err != nil {
			return !strings.Contains(err.Error(), "invalid")
		}
	}
}

func TestCorpusWhole(t *testing.T) {
	tools := corpusTools(t)
	for _, e := range examples(t) {
		b := Lookup(e.Format).Bind(nil)
		a := parse(t, b, Options{Tools: tools, InReasoning: e.InReasoning}, e.Expect.Finish == "length", e.Raw)
		if what := e.check(&a); what != "" {
			t.Errorf("%s: %s:\n raw %q\n got %+v", e.ID, what, e.Raw, a)
		}
	}
}
