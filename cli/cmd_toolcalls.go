package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/tokenizer"
)

// toolCallLine is one answer of a model.
type toolCallLine struct {
	ID          string `json:"id"`
	Format      string `json:"format"`
	Tools       string `json:"tools"`
	Raw         string `json:"raw"`
	InReasoning bool   `json:"in_reasoning"`
}

// toolCallResult is what a client gets of it.
type toolCallResult struct {
	ID          string       `json:"id"`
	Reasoning   *string      `json:"reasoning"`
	Content     *string      `json:"content"`
	Calls       []readCall   `json:"calls"`
	Finish      string       `json:"finish"`
	SplitsEqual bool         `json:"splits_equal"`
	result      calls.Result // as the parser counts
}

type readCall struct {
	Name      string `json:"name"`
	Arguments any    `json:"arguments"` // JSON, or a text that is none
	ID        string `json:"id"`
	Partial   bool   `json:"partial,omitempty"`

	text string
}

// toolCallLineMax bounds a line of the file.
const toolCallLineMax = 16 << 20

func runToolCallsTest(c *console, args []string) error {
	set := newFlagSet("toolcalls test FILE.jsonl --tools FILE [--tokenizer FILE] --json")
	toolFile := set.String("tools", "", "the tools: a list, or an object of lists by the lines' tools")
	tokens := set.String("tokenizer", "", "tokenizer.json, a model's folder or a GGUF file: read its tokens too, with markers by their ids")
	set.Bool("json", false, "print JSON, which is the only form")
	rest, err := c.parse(set, args)
	if err != nil {
		return err
	}
	if len(rest) != 1 || *toolFile == "" {
		return usageError("toolcalls test needs one file and --tools FILE")
	}
	tools, err := readToolSets(*toolFile)
	if err != nil {
		return err
	}
	var reader callReader
	if *tokens != "" {
		if reader.tokenizer, err = checkpoint.OpenTokenizer(*tokens); err != nil {
			return err
		}
	}
	f, err := os.Open(rest[0])
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, toolCallLineMax)
	out := json.NewEncoder(c.out)
	out.SetEscapeHTML(false)
	for n := 1; lines.Scan(); n++ {
		var line toolCallLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("%s: line %d: %w", rest[0], n, err)
		}
		format := calls.Lookup(line.Format)
		if format == nil {
			return fmt.Errorf("%s: line %d: no format is named %q", rest[0], n, line.Format)
		}
		list, ok := tools[line.Tools]
		if !ok {
			if list, ok = tools[""]; !ok {
				return fmt.Errorf("%s: line %d: %s has no tools named %q", rest[0], n, *toolFile, line.Tools)
			}
		}
		if err := out.Encode(reader.read(format, list, &line)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// readToolSets reads lists of tools by their names; a file with one list has it
// under the empty name.
func readToolSets(path string) (map[string][]calls.Tool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var sets map[string]json.RawMessage
	if json.Unmarshal(data, &sets) != nil {
		var list []json.RawMessage
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("%s: must be a list of tools, or an object of such lists: %w", path, err)
		}
		sets = map[string]json.RawMessage{"": data}
	}
	tools := map[string][]calls.Tool{}
	for name, set := range sets {
		tools[name] = calls.ReadTools(set)
	}
	return tools, nil
}

// callReader reads answers, and with a tokenizer their tokens too.
type callReader struct {
	tokenizer *tokenizer.Tokenizer // nil for text alone
}

// read reads an answer as text and as tokens, and says whether both, and all cuts of the
// text, give the same.
func (r *callReader) read(format *calls.Format, tools []calls.Tool, line *toolCallLine) *toolCallResult {
	whole := readToolCalls(format.Bind(nil), tools, line)
	if t := r.tokenizer; t != nil {
		var pieces []callPiece
		for _, id := range t.Encode(nil, line.Raw, tokenizer.EncodeOptions{ParseSpecial: true}) {
			pieces = append(pieces, callPiece{id, t.Bytes(id)})
		}
		whole.SplitsEqual = whole.SplitsEqual && readPieces(format.Bind(t.Special), tools, line, pieces).equal(whole)
	}
	return whole
}

// callPiece is a piece of an answer: a token, or text with the id −1.
type callPiece struct {
	id   int32
	text []byte
}

// readToolCalls reads an answer whole, and cut at every place into two, and into
// characters and bytes.
func readToolCalls(format *calls.Bound, tools []calls.Tool, line *toolCallLine) *toolCallResult {
	read := func(texts ...string) *toolCallResult {
		pieces := make([]callPiece, len(texts))
		for i, text := range texts {
			pieces[i] = callPiece{-1, []byte(text)}
		}
		return readPieces(format, tools, line, pieces)
	}
	whole := read(line.Raw)
	whole.SplitsEqual = true
	check := func(pieces ...string) {
		whole.SplitsEqual = whole.SplitsEqual && read(pieces...).equal(whole)
	}
	var characters, single []string
	for i := 0; i < len(line.Raw); {
		_, n := utf8.DecodeRuneInString(line.Raw[i:])
		characters = append(characters, line.Raw[i:i+n])
		i += n
	}
	for i := range len(line.Raw) {
		check(line.Raw[:i], line.Raw[i:])
		single = append(single, line.Raw[i:i+1])
	}
	check(characters...)
	check(single...)
	return whole
}

func readPieces(format *calls.Bound, tools []calls.Tool, line *toolCallLine, pieces []callPiece) *toolCallResult {
	p := calls.NewParser(format, calls.Options{Tools: tools, InReasoning: line.InReasoning, Seed: line.ID})
	r := &toolCallResult{ID: line.ID, Calls: []readCall{}}
	for _, piece := range pieces {
		r.add(p.Feed(piece.id, piece.text))
	}
	// The lines do not say how the model ended: a call without an end was cut.
	events, result := p.Finish(true)
	r.add(events)
	r.result = result
	switch {
	case result.Open:
		r.Finish = "length"
	case result.Ended > 0:
		r.Finish = "tool_calls"
	default:
		r.Finish = "stop"
	}
	for i := range r.Calls {
		call := &r.Calls[i]
		if call.Arguments = call.text; json.Valid([]byte(call.text)) {
			call.Arguments = json.RawMessage(call.text)
		}
	}
	return r
}

func (r *toolCallResult) add(events []calls.Event) {
	join := func(to **string, text []byte) {
		if *to == nil {
			*to = new(string)
		}
		**to += string(text)
	}
	for _, e := range events {
		switch e.Kind {
		case calls.Reasoning:
			join(&r.Reasoning, e.Text)
		case calls.Content:
			join(&r.Content, e.Text)
		case calls.CallStart:
			r.Calls = append(r.Calls, readCall{Name: e.Name, ID: e.ID, Partial: true})
		case calls.Args:
			r.Calls[e.Index].text += string(e.Text)
		case calls.CallEnd:
			r.Calls[e.Index].Partial = false
		}
	}
}

func (r *toolCallResult) equal(o *toolCallResult) bool {
	same := func(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }
	if !same(r.Reasoning, o.Reasoning) || !same(r.Content, o.Content) || len(r.Calls) != len(o.Calls) || r.result != o.result {
		return false
	}
	for i, a := range r.Calls {
		if b := o.Calls[i]; a.Name != b.Name || a.ID != b.ID || a.text != b.text || a.Partial != b.Partial {
			return false
		}
	}
	return true
}
