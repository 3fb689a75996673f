// Package upstream is an engine that runs nothing itself: it relays generations to
// another inference server over the OpenAI API, such as vLLM or llama-server, and
// keeps the promises of wire.Engine as far as that server allows.
//
// Goal: the gateway decides who may run and when, as before its own engine. What was
// sent and has not ended is counted here (ledger), and not read from the server, so
// that no more is inside it than it computes at once. A broken answer never looks
// like a whole one: a choice is finished only by a finish reason that was understood
// and after the stream's end, and everything else is an error.
//
// Non-goals: pausing a generation inside the other server, which no HTTP API can;
// which request goes first (admission); client JSON beyond the parts that differ
// between servers (gateway).
//
// What a server takes, says and breaks is in the table of dialects (dialect.go). The
// client's body is passed on with its own members, but for those that a client must
// not choose and those that are always ours: model, stream, stream_options and the
// limit of tokens.
//
// Ownership: Engine has two goroutines, which look after the server and read its
// metrics, and each generation one that reads its answer, until it has ended or was closed. State is
// published under one lock and in order.
package upstream
