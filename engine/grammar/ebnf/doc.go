// Package ebnf reads grammars that people write: GBNF, as llama.cpp's server takes
// it, and a part of Lark, as llguidance takes it. Both become an expression of a
// grammar.Builder.
//
// Goal: the language that the text says, and errors with line and reason. What is not
// supported is refused by name.
//
// Non-goals: priorities of terminals and the trees that a Lark parser builds. They
// say how a text is read, not which texts there are.
//
// # Lowering
//
// Rules that no recursion runs through become regular expressions, as long as they
// are small, and neighbours in a sequence become one terminal: that is what makes
// masks quick. The rest stay rules.
package ebnf
