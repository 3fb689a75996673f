// Package spans sends trees of spans to an OpenTelemetry collector over OTLP, by
// gRPC or HTTP, or writes them as OTLP JSON.
//
// Goal: spans are made after a request has ended, so serving it costs nothing. Its
// ids were propagated long before; trees therefore go through the SDK with given
// ids and instants. Export appends to a bounded queue and returns. What does not
// fit or cannot be sent is dropped and counted with its reason. A trace that
// several requests share, such as a step of the engine, is sent once.
//
// The queue replaces the SDK's batch processor. That one takes single spans, so a
// full queue would send half a tree, and it does not say how many it dropped.
//
// Non-goals: deciding which requests are kept, and what their spans say
// (gateway/capture); metrics.
//
// Ownership: a Tree belongs to the Exporter after Export, and must not be changed.
// The Exporter has one goroutine until Close returns.
package spans
