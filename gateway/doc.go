// Package gateway is HTTP in and out: the only package that knows status
// codes and client JSON. It speaks the OpenAI API to clients and package wire
// to an engine, and asks package admission who may start.
//
// Read serve.go first: a request's whole path is one function.
//
// Rules that hold on every path:
//
//  1. A request ends in exactly one telemetry.Outcome, and its ticket and its
//     streams are given back, whatever happens (serve.go, exchange.end). So do
//     requests that make no text, probes excepted (routes.go, answer), and
//     what was not even a request (unread.go).
//
//  2. Nothing of a fasthttp request is used after its handler returned: the
//     body is taken over, what lives on aliases it, and it is let go of once
//     the prompt is prepared.
//
//  3. When the client leaves, in any state, the request's context ends. A
//     client that shuts only its write side counts as gone (conn.go, watch).
//
//  4. Once a stream is open its failures are error events, followed by the end
//     of the body and of the connection, and never by [DONE].
//
//  5. A slow reader costs one bounded buffer, and is cut when it takes none of
//     a write's pieces within the write-stall limit.
//
//  6. Answers are written by the exchange itself, plain ones as streams are
//     (output.go), so that a record ends when its last byte has left. Only
//     refusals, which are small, leave by fasthttp.
//
//  7. What a request reserved of its tenant's budgets is settled or refunded
//     once, after its ticket is given back (serve.go, settle).
//
//  8. Who asks is what its API key says; no header or field of a client makes
//     it another tenant, or raises its class above its tenant's (identify.go).
//
// Non-goals: deciding order and limits (admission), knowing models (engine), TLS.
//
// Who owns what: New starts the watcher and the admission queue, Serve and
// ServeAdmin run until Shutdown, and Close stops what New started.
package gateway
