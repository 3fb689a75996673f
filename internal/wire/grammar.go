package wire

import (
	"encoding/json"
	"strconv"
)

// Grammar is what an answer must match, from its first byte to its last.
type Grammar struct {
	Kind GrammarKind
	// Text is the schema, regular expression or grammar; for GrammarChoice a JSON
	// array of texts, and "" for GrammarObject.
	Text string
	// Strict refuses words and formats of a schema that are not enforced. Compact
	// allows no white space between the tokens of JSON.
	Strict, Compact bool
	// Param is the client's name of the field that it came from, for errors.
	Param string
	// Calls, where set, are the tool calls that may come in place of the answer, with
	// arguments that match their schemas. It needs Options.Split.
	Calls *HeldCalls
}

// HeldCalls are tool calls that are held to their tools.
type HeldCalls struct {
	// Tools is a JSON array of the tools that may be called. One whose function has
	// strict set is refused if its schema cannot be enforced.
	Tools json.RawMessage
	// Required says that there is at least one call, and nothing but reasoning before
	// it. Most bounds the calls; 0 does not.
	Required bool
	Most     int
}

// ToolPlace is how an engine's error names the schema of a tool. The gateway knows where in
// the client's request it stands.
func ToolPlace(name string) string { return "tools[" + strconv.Quote(name) + "].function.parameters" }

// GrammarKind says how a Grammar is written.
type GrammarKind uint8

const (
	GrammarNone   GrammarKind = iota
	GrammarObject             // any JSON object
	GrammarSchema             // a JSON Schema
	GrammarRegex              // a regular expression that the whole answer matches
	GrammarChoice             // one of several texts
	GrammarGBNF               // a grammar as llama.cpp writes it
	GrammarLark               // a grammar as Lark writes it
	GrammarCalls              // free text; only Calls are held

	GrammarKindCount
)

var grammarNames = [GrammarKindCount]string{"", "json_object", "json_schema", "regex", "choice", "gbnf", "lark", "tools"}

// String returns the kind's stable name.
func (k GrammarKind) String() string {
	if k < GrammarKindCount {
		return grammarNames[k]
	}
	return "unknown"
}

// checkGrammar refuses what would end an answer before its grammar does.
func (o *Options) checkGrammar() *Error {
	g := o.Grammar
	switch {
	case g == nil:
	case g.Kind == GrammarNone || g.Kind >= GrammarKindCount:
		return InvalidParam(g.Param, "the grammar's kind %d is not known", uint8(g.Kind))
	case g.Kind == GrammarCalls && (g.Calls == nil || !o.Split):
		return InvalidParam(g.Param, "tool calls are only held in an answer that is split")
	case len(o.Stop) > 0 && (g.Kind != GrammarCalls || g.Calls.Required):
		return InvalidParam("stop", "stop and %s cannot be combined: a stop text could end the answer before it is whole; leave one of them out", g.Param)
	case len(o.StopTokens) > 0:
		return InvalidParam("stop_token_ids", "stop_token_ids and %s cannot be combined: a stop token could end the answer before it is whole; leave one of them out", g.Param)
	case o.IgnoreEOS:
		return InvalidParam("ignore_eos", "ignore_eos and %s cannot be combined: an answer ends where nothing more may follow; leave one of them out", g.Param)
	}
	return nil
}

func appendGrammar(b []byte, g *Grammar) []byte {
	if g == nil {
		return append(b, 0)
	}
	b = append(b, byte(g.Kind))
	b = appendText(appendText(appendBool(appendBool(b, g.Strict), g.Compact), g.Text), g.Param)
	if b = appendBool(b, g.Calls != nil); g.Calls == nil {
		return b
	}
	return appendInt(appendBool(appendText(b, g.Calls.Tools), g.Calls.Required), g.Calls.Most)
}

func (d *decoder) grammar() *Grammar {
	kind := GrammarKind(d.byte())
	if kind == GrammarNone {
		return nil
	}
	g := &Grammar{Kind: kind, Strict: d.bool(), Compact: d.bool(), Text: d.text(), Param: d.text()}
	if d.bool() {
		g.Calls = &HeldCalls{Tools: d.bytes(), Required: d.bool(), Most: d.int()}
	}
	return g
}
