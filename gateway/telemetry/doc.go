// Package telemetry has what is known of each request: one flat Record, which is
// filled along the request path and finished exactly once. The access log line and
// the metrics follow from it.
//
// Goal: one record per request, so that log, metrics and debug pages cannot disagree;
// label values from closed sets only; gauges computed from the state that owns them
// when they are read, so that none can drift.
//
// Non-goal: client text. Records have counts, instants, and ids whose length and
// alphabet the gateway has checked. The one exception is ErrorText: it has the name of
// a model or path that does not exist, cut and quoted.
//
// Ownership: a Record belongs to its request until Finish copies it.
package telemetry
