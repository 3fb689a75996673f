// Package spans turns flat facts of finished requests into trees of spans and
// sends them to an OpenTelemetry collector over OTLP, by gRPC or HTTP.
//
// Goal: one trace from the caller's span to the kernels of the steps that a
// request waited for, made after the request has ended, so that serving it
// costs nothing. Export appends to a bounded queue and returns; what does not
// fit, or cannot be sent, is dropped whole and counted with its reason. Trees
// go through the SDK with the instants and ids that they were given, since
// the ids were propagated long before.
//
// The queue is ours and not the SDK's batch processor: that one takes spans
// one by one, so that a full queue would send half a tree, and tells nobody
// how many it dropped.
//
// Non-goals: deciding which requests are kept (every tree that is handed in
// is sent, with the sampled flag as it came); metrics; prompt and answer text,
// for which the input has no field.
//
// Ownership: a Tree or Request belongs to the Exporter once it was handed in,
// and must not be changed. The Exporter has one goroutine until Close returns.
package spans
