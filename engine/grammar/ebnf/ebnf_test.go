package ebnf

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/engine/grammar/schema"
)

// read reads a grammar of either form.
func read(b *grammar.Builder, text string) (grammar.Expr, error) {
	if strings.Contains(text, "::=") {
		return GBNF(b, text)
	}
	return Lark(b, text, func(s string) (grammar.Expr, error) {
		r, err := schema.Compile(b, s, schema.Options{})
		if err != nil {
			return 0, err
		}
		return r.Value, nil
	})
}

func compile(text string, l grammar.Limits) (*grammar.Grammar, error) {
	b := grammar.NewBuilder(l)
	e, err := read(b, text)
	if err != nil {
		return nil, err
	}
	return b.Compile(e)
}

// arithmetic and others are written as their users write them.
const (
	gbnfJSON = `root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
`
	gbnfChess = `# moves
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?`
	larkCalc = `// sums and products
?start: expr
?expr: term | expr "+" term -> add
     | expr "-" term -> sub
?term: factor (("*" | "/") factor)*
factor: NUMBER | "-" factor | "(" expr ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE`
	larkSQL = `start: "SELECT"i columns "FROM"i NAME [ "WHERE"i NAME OP value ]
columns: "*" | NAME ("," NAME)*
value: ESCAPED_STRING | INT
OP: "=" | "<" | ">="
NAME.2: /[a-z_]{1,20}/
DAY: "a".."g"
%import common (INT, ESCAPED_STRING)
%ignore / +/`
	larkSchema = `start: "call(" %json {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false} ")" tail~2..3
tail: "!"
`
)

func TestTexts(t *testing.T) {
	for name, c := range map[string]struct {
		grammar  string
		yes, not []string
	}{
		"json":         {gbnfJSON, []string{`{}`, `{"a":1}`, "{ \"a\": [1, 2.5e3, \"x\\u00e9\", {\n  }], \"b\":null }", `{"é漢":-0}`}, []string{``, `[1]`, `{"a"}`, `{"a":01}`, `{"a":1,}`, "{\"a\":\"\n\"}", ` {}`}},
		"chess":        {gbnfChess, []string{"1. e4 e5\n2. Nf3 Nc6\n", "1. d4 d5\n12. exd5 O-O-O+\n"}, []string{"1. e4 e5\n", "1. e9 e5\n2. e4 e5\n", "1. e4 e5\n2. e4 e5"}},
		"calc":         {larkCalc, []string{"1", "1+2*3", "-(1.5 - 2e3)/ 4", " 1"}, []string{"", "1+", "(1", "1 2", "a"}},
		"sql":          {larkSQL, []string{`SELECT * FROM t`, `select a,b from t where a >= "x y"`, `sElEcT a , b FROM t WHERE a=1`, `SELECTaFROMt`}, []string{`SELECT FROM t`, `SELECT a b FROM t`, `SELECT * FROM T`}},
		"schema":       {larkSchema, []string{`call({"a": 1})!!`, `call({"a":-7})!!!`}, []string{`call({})!!`, `call({"a": 1})!`, `call({"a": 1})!!!!`}},
		"counted":      {`root ::= "a"{2} "b"{1,} ("c" | "d"){0,2} [x-z]{,1}`, []string{"aab", "aabbcd", "aabz"}, []string{"ab", "aa", "aabccc", "aabzz"}},
		"left":         {`root ::= root "a" | "b"`, []string{"b", "baa"}, []string{"a", "ab", ""}},
		"empty":        {`root ::= "" | "a" root`, []string{"", "aaa"}, []string{"b"}},
		"escapes":      {`root ::= "\x41\u00e9\U0001F600\t\"\\" [\]\-^a]`, []string{"Aé😀\t\"\\]", "Aé😀\t\"\\^"}, []string{"Aé😀\t\"\\b"}},
		"next line":    {"root ::= \"a\"\n  | b\nb ::= \"c\"", []string{"a", "c"}, []string{"ac"}},
		"fold":         {`start: "straße"i /[a-c]x/i`, []string{"STRAßEBX", "straſeax"[:0] + "straßecX"}, []string{"strasseax"}},
		"ranges":       {`start: "a".."c" "é".."ê"`, []string{"aé", "cê"}, []string{"dé", "aë"}},
		"inline":       {"start: a b? [\"c\"]\na: \"a\"+\nb: \"b\"", []string{"aab", "ac", "abc"}, []string{"b", "acc"}},
		"many ignored": {"start: \"a\" \"b\"\n%ignore \" \"\n%ignore /#[^\\n]*\\n/", []string{"ab", " a  #x\n b "}, []string{"a #b"}},
	} {
		g, err := compile(c.grammar, grammar.DefaultLimits())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a := g.NewAutomaton()
		for want, texts := range map[bool][]string{true: c.yes, false: c.not} {
			for _, text := range texts {
				if got, err := a.Accepts(text); got != want || err != nil {
					t.Errorf("%s: %q accepted %v, want %v (%v)", name, text, got, want, err)
				}
			}
		}
	}
}

func TestFaultsHaveALineAndAReason(t *testing.T) {
	for text, want := range map[string]string{
		"root ::= \"a\"\n  b": "GBNF grammar, line 2",
		"root ::= a":          "line 1: a is not defined", "x ::= \"a\"": "no rule root",
		"root ::= \"a": "no end", "root ::= [a": "no end", "root ::= (\"a\"": "no end", "root ::= [z-a]": "down to",
		"root ::= \"a\"{3,2}": "matches nothing", "root ::= \"a\"{}": "{n}", "root ::= \"a\"{1000001}": "more than 1000000",
		"root ::= <[12]>": "tokens", "root ::= \"\\q\"": `\q`, "root ::= \"\\u12\"": "4 hexadecimal", "root ::= )": "cannot stand",
		"root ::= \"a\"\nroot ::= \"b\"": "line 2: root is defined twice", "::= x": "name",
		"start: x": "x is not defined", "start: \"a\"\n%declare X": "%declare is not supported", "start: t{\"a\"}": "template",
		"start[stop=\"x\"]: \"a\"": "attributes", "start: X\nX: X \"a\" |": "refers to itself", "start: X\nX: y\ny: \"a\"": "refers to itself or to a rule",
		"start: /(?<!a)b/": "in /(?<!a)b/", "start: /a/x": "flag x", "start: <think>": "tokens", "%import python.NAME\nstart: NAME": "common",
		"%import common.NOPE\nstart: NOPE": "NOPE is not known", "start: %json 7x": "a schema is", "start: \"a\"..\"\"": "range", "start: @": "cannot stand", "": "no rule start",
		"start: \"a": "no end", "start: /a": "no end", "start: (\"a\"": "no end", "start: %json {\"contains\": {}, \"maxItems\": 2}": "contains", "start \"a\"": "colon",
		"root ::= " + strings.Repeat("(", 70) + "\"a\"" + strings.Repeat(")", 70): "64 deep",
		"root ::= \"\xff\"": "UTF-8",
	} {
		_, err := compile(text, grammar.DefaultLimits())
		syntax := (*grammar.SyntaxError)(nil)
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

// TestHostile: what is too much is refused soon.
func TestHostile(t *testing.T) {
	doubling := "root ::= a0\n"
	for i := range 60 {
		doubling += fmt.Sprintf("a%d ::= a%d a%d\n", i, i+1, i+1)
	}
	var chain strings.Builder
	chain.WriteString("root ::= r0\n")
	for i := range 20_000 {
		fmt.Fprintf(&chain, "r%d ::= \"x\" r%d\n", i, i+1)
	}
	for name, text := range map[string]string{
		"doubling":   doubling + "a60 ::= \"x\"\n",
		"ambiguous":  `root ::= ("a" | "a")* ("a"* "a"*){0,1000}`,
		"chain":      chain.String() + "r20000 ::= \"y\"\n",
		"long":       "root ::= \"" + strings.Repeat("a", 500_000) + "\"",
		"too long":   "root ::= \"" + strings.Repeat("a", 1<<21) + "\"",
		"choices":    "root ::= " + strings.Repeat("\"a\" | ", 50_000) + "\"b\"",
		"counts":     "root ::= (((\"a\"{1000}){1000}){1000}){1000}",
		"repeats":    "root ::= \"a\"" + strings.Repeat("*", 10_000),
		"recursions": "root ::= root root | \"\" | root",
	} {
		began := time.Now()
		g, err := compile(text, grammar.DefaultLimits())
		if (err != nil) != (name == "too long") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err == nil {
			_, err = g.NewAutomaton().Accepts(strings.Repeat("a", 100))
		}
		t.Logf("%s: %v, %v", name, time.Since(began), err)
	}
}

// lowLimits keep a fuzzed grammar small.
func lowLimits() grammar.Limits {
	l := grammar.DefaultLimits()
	l.Work, l.StepWork, l.Nodes, l.Positions, l.Items, l.SourceSize = 20_000, 20_000, 20_000, 5000, 500, 4096
	return l
}

// fuzz: a text is a grammar or has a fault; what a grammar accepts it accepts again.
func fuzz(f *testing.F, seeds ...string) {
	for _, s := range seeds {
		f.Add(s, "1+2")
	}
	f.Fuzz(func(t *testing.T, text, word string) {
		g, err := compile(text, lowLimits())
		if err != nil {
			return
		}
		first, _ := g.NewAutomaton().Accepts(word)
		if again, err := g.NewAutomaton().Accepts(word); first != again {
			t.Errorf("%q: %v, then %v (%v)", word, first, again, err)
		}
	})
}

func FuzzGBNF(f *testing.F) { fuzz(f, gbnfJSON, gbnfChess, `root ::= "a"{2,} [^b]?`) }
func FuzzLark(f *testing.F) { fuzz(f, larkCalc, larkSQL, larkSchema) }
