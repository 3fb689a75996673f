// Package jinja renders the chat templates of model files. Its output equals that
// of Hugging Face transformers byte for byte: Jinja2's language with trim_blocks,
// lstrip_blocks, loop controls and {% generation %}, Python's rules for printing
// and comparing values, and transformers' own tojson.
//
// Goal: a template from an untrusted file can neither hang the process nor use up
// its memory. Every statement and call is counted. Every string and list is
// charged before it is built. Recursion is bounded in the parser, in macros and in
// nested values. The evaluator checks its context regularly.
//
// Non-goals: template inheritance, imports, autoescaping, filters that write HTML
// (urlize, xmlattr) or lay out lines (wordwrap, pprint), randomness (random, lipsum),
// and anything outside the template. They are errors that name the tag or the filter.
//
// Some templates need more than the reference allows, so these work too: methods
// that change the lists and dicts that a template has made, the filter from_json, and
// tojson of values that Python must first turn into a list.
//
// Use: Parse once, then Render any number of times from any goroutine. Renders that
// run at the same time must not share variables.
//
// Values are Go values: nil (None), Undefined, bool, int64, *big.Int, float64,
// string, *List, *Dict, Func, and a few that only templates make. ParseJSON makes
// them from JSON and keeps the order of keys.
//
// Stages: lex.go cuts the source into tokens. parse*.go and expr.go build a tree of
// stmt and expr. stmt.go and eval.go run the tree on a state (state.go), which
// counts the work. filter*.go, method*.go and builtin.go hold the functions that
// templates call; print.go, format*.go and json.go turn values into text.
//
// Internally, errors are panics of type thrown, which Parse and Render recover and
// return.
package jinja
