// Package gateway is HTTP in and out: the only package that knows status
// codes and client JSON. It speaks the OpenAI API to clients (responses_*.go the Responses
// API and messages_*.go Anthropic's, both as chats) and package wire to an engine, and asks package admission who may start.
//
// Read serve.go first: a request's whole path is one function.
//
// Rules that hold on every path:
//
//  1. A request ends in exactly one telemetry.Outcome, and gives its ticket and
//     its streams back, whatever happens (serve.go, exchange.end). Requests that
//     make no text have an outcome too, probes excepted (routes.go, answer), and
//     so has what was not even a request (unread.go).
//
//  2. Nothing of an httpd.Request is used after its handler has returned. The
//     body is taken over, the decoded call aliases it, and it is released once
//     the prompt is prepared.
//
//  3. When the client leaves, in any state, the request's context ends. A
//     client that shuts only its write side counts as gone (httpd.Request.Watch).
//
//  4. Once a stream is open its failures are error events, followed by the end
//     of the body and never by [DONE]. The connection goes on as its head said.
//
//  5. A slow reader costs one bounded buffer. It is cut when one write waits for
//     it longer than the write-stall limit.
//
//  6. Answers are written by the exchange itself, plain ones and streams alike
//     (httpd.Output), so that a record ends when its last byte has left. Only
//     refusals, which are small, leave when the handler has returned.
//
//  7. What a request reserved of its tenant's budgets is settled or refunded
//     once, after its ticket is given back (budget.go, meter).
//
//  8. Package identity alone says who asks, by a proof: a key, a token or a trusted
//     proxy's word. Nothing else that a client sends makes it another tenant, or
//     raises its class above its tenant's (identify.go).
//
// Non-goals: deciding order and limits (admission), knowing models (engine).
//
// Who owns what: New makes the two servers, Serve and ServeAdmin run until
// Shutdown, and Close releases the servers. The Parts belong to the caller.
package gateway
