// Package telemetry keeps what is known of each request: one flat Record,
// filled along the request path and finished exactly once, from which the
// access log line and the metrics follow.
//
// Goal: one truth per request, so that log, metric and debug page cannot
// disagree; label values from closed sets only; level gauges computed from
// owned state when they are read, so that none can drift.
//
// Non-goal: client text. Records hold counts, instants, ids whose length and
// alphabet the gateway has checked, and of a model or path that is not there
// the name, cut and quoted.
//
// Ownership: a Record belongs to its request until Finish copies it.
package telemetry
