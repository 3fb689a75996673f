// Package capture keeps the requests that an operator will ask about: slow ones,
// failed ones, ones that the client asked to keep, and a few others to compare
// with.
//
// Goal: when a request ends, decide from its record whether it is kept. A request
// that is not kept costs one look at its record. For a kept one, gather its steps
// and the other requests in them, say in one sentence where its time went, build
// its spans, and hold it in bounded memory and on disk. Two kinds of dispatched
// requests are always kept: those that missed a goal, and those whose caller's
// trace is sampled. If the quota of the class or tenant is used up, they are kept
// without their steps.
//
// A kept request is its record and its steps, in nanoseconds. The View for pages
// and programs (rounded milliseconds, names) and the spans are both made from
// these, and never from each other.
//
// Words: a capture is a kept request. A launch trace is the kernel launches of some
// steps, recorded after a request that missed a goal.
//
// Non-goals: HTML (package gateway), OTLP (gateway/spans), and the texts of prompts
// and answers, which are in no record.
//
// Ownership: the Store has one goroutine until Close, which builds what is kept
// and writes to disk. Another goroutine, which follows the engine's states, adds
// the steps. Views are shared and never changed.
package capture
