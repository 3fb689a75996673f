// Package capture keeps the requests that somebody will ask about: slow,
// failed, forced and, for comparison, a few others.
//
// Goal: at a request's end, decide from its flat record whether it is kept; if
// so, gather the steps it was in and with whom, say in one sentence where its
// time went, and hold it in bounded memory and on disk.
//
// Non-goals: HTML (gateway), OTLP (internal/spans), and texts of prompts and
// answers, which are in no record.
package capture
