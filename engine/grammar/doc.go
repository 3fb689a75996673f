// Package grammar decides which bytes may follow which: a grammar of rules
// over terminals, each terminal a regular expression over bytes. It knows no
// tokenizer and no HTTP.
//
// # Building
//
// Everything that constrains an answer (JSON Schema, a pattern, GBNF, Lark,
// the formats of tool calls) is lowered to a Builder:
//
//	b := grammar.NewBuilder(grammar.DefaultLimits())
//	digits := b.Terminal("digits", b.Times(b.Class(grammar.Range{Lo: '0', Hi: '9'}), 1, grammar.Unlimited))
//	comma := b.Terminal("comma", b.Literal(","))
//	list := b.Rule("list")
//	b.Define(list, b.Choice(digits, b.Seq(digits, comma, list)))
//	g, err := b.Compile(list)
//
// A Regex is made by Literal, Literals, Class, Bytes, Cat, Or, And, Not, Times;
// an Expr by Terminal, Rule, Seq, Choice, Optional, Repeat. Equal calls give
// equal values: both are interned, so sharing a part costs nothing.
//
// # Promises
//
//   - The language is exactly the grammar's. Terminals are not matched
//     longest-first and have no priorities: a text is accepted if any way to
//     cut it into terminals derives it. Two terminals may match the same text.
//   - No dead ends: a prefix is accepted only if some text completes it. What
//     can derive nothing is removed by Compile; a start that can derive
//     nothing is an error.
//   - A terminal may match the empty string; a rule may be left recursive,
//     right recursive or ambiguous.
//   - Times and Repeat count; they do not copy. A bound of 10,000 costs what
//     a bound of 2 does.
//   - A rule that stands last in another is entered without a new level, so
//     chains of rules (the next allowed property of an object) and right
//     recursion cost the same at any length.
//   - Everything that can grow has a bound in Limits. Above one, Compile or
//     the step that met it returns a *LimitError, which names the limit.
//   - The Builder remembers its first error; its methods may be called after
//     it and Compile returns it. A Builder is not safe for several goroutines.
//
// # Matching
//
// A Grammar's Automaton is one for all that use the grammar at the same time
// and remembers what it has computed. It is a state machine over bytes, made
// as it is needed: State, Next and Accepting are all that a mask needs.
package grammar
