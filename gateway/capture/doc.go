// Package capture keeps the requests that somebody will ask about: slow,
// failed, forced and, for comparison, a few others.
//
// Goal: at a request's end, decide from its flat record whether it is kept; if
// so, gather the steps it was in and with whom, say in one sentence where its
// time went, and hold it in bounded memory and on disk. A request that is not
// kept costs a look at its record. Of those that ran and missed a goal, and of
// those whose caller's trace is sampled, each is kept; whatever is beyond the
// ration of its class and tenant without its steps.
//
// Non-goals: HTML (gateway), OTLP (gateway/spans), and texts of prompts and
// answers, which are in no record.
//
// Ownership: one goroutine makes views and writes to disk, until Close; whoever
// hears the engine's states feeds the steps. Views are shared and never changed.
package capture
