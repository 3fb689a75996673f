// Package jinja renders the Jinja templates that come inside model files, byte
// for byte as Hugging Face transformers does: Jinja2's language with
// trim_blocks, lstrip_blocks, loop controls and {% generation %}, Python's
// rules for printing and comparing values, and its own tojson.
//
// Goal: a template from an untrusted file can neither hang nor fill the
// process. Every statement and call is counted, every string and list that is
// built is charged before it is built, recursion is bounded in the parser, in
// macros and in nested values, and a context is looked at along the way.
//
// Not here: template inheritance, imports, autoescaping and the filters that
// write HTML or wrap text (urlize, xmlattr, striptags, wordwrap, truncate,
// pprint …), chance (random, lipsum), and everything else that reaches outside
// the template. They are errors that name the tag or the filter.
//
// More than the reference allows, since there are templates that need it: the
// methods that change lists and dicts, the filter from_json, and tojson of what
// Python would first have to make a list of.
//
// Use: Parse once, Render as often and from as many goroutines as wanted. The
// variables of a Render belong to it alone, since a template may change lists.
//
// Values are Go values: nil (None), Undefined, bool, int64, *big.Int, float64,
// string, *List, *Dict, Func and a few that only templates make. ParseJSON
// makes them from JSON and keeps the order of keys.
//
// Inside, errors travel as panics of type thrown, from the parser's and the
// evaluator's depth up to Parse and Render, which return them.
package jinja
