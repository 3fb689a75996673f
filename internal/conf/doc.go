// Package conf turns documented structs into configuration: the same struct
// gives the defaults, the YAML keys, the environment variables, the flags and
// the reference page.
//
// A field carries three tags: yaml (its key, unit last), default (as text) and
// help (one sentence with the unit). Zero means default, so a field whose zero
// has a meaning of its own says so in its help and has no default.
//
// Non-goal: knowing any struct of ours. The packages own their Config and
// validate it in New; main composes them into one file.
package conf
