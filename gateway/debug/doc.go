// Package debug is the operator's pages: which requests run, wait and ended,
// where the time of one request went, what the engine's last steps were.
//
// A page is one static file of HTML, a style sheet and a few scripts, all in the
// binary (assets/). The script reads the page's JSON, which programs get with
// ?format=json, and builds the page from it as DOM nodes: every string becomes
// text, so no data can become markup. The Content-Security-Policy allows the
// files of this package and nothing else: no inline script, no string that is
// parsed as HTML, nothing from another host.
//
// The pages hold no text of prompts and answers.
//
// Pages answers by path and query, and knows neither connections nor the shape
// of error objects: package gateway serves it on the admin address. Everything
// it reads belongs to others (Sources); it owns no state and starts nothing.
//
// Non-goals: metrics (gateway/telemetry), what is kept of a request and the
// sentence about it (gateway/capture), spans (gateway/spans).
package debug
