// Package wire is the contract between gateway and engine: the types that
// cross it, the promises on them, and the frames that carry them over a Unix
// socket.
//
// Goal: both sides compile against this package and not against each other. A
// generation is a Stream of Events. The engine sends one frame a step, so that
// the cost grows with the steps and not with tokens times streams. A slow reader
// parks its own generation and no other.
//
// Not a goal: a public protocol. Gateway and engine are the same binary, and the
// protocol number in the hello must match.
//
// The engine's side listens and serves; the gateway's side dials. A Client is an
// Engine like any other, and connects again by itself:
//
//	ln, err := wire.Listen(path)
//	err = wire.Serve(ctx, ln, engine, wire.ServerConfig{})
//
//	client, err := wire.NewClient(wire.Config{Path: path})
//	err = client.WaitReady(ctx)
//
// Flow: a dispatch tells the engine how many events its reader has room for.
// Each event uses up one place, and each acknowledgement gives some back. The
// server takes from the engine's stream only what it may send, so that the
// stream fills up and the engine parks the generation. A sequence has exactly one
// End on the wire, also when it is cancelled, so both sides agree at every moment
// which sequences are live.
//
// Each step leaves a StepRecord: which sequences it computed, which it left out
// and why, and how long its kernels took. The engine keeps the last records in a
// StepLog, frames carry them in order, and the Client keeps a StepLog of its own,
// so that State.Steps is read in the same way on both sides. A record is
// in the log before an End event of its step can be read. A record that was lost,
// because the reader was far behind, leaves a gap in the numbers.
//
// The blocks that the engine can reuse travel as a hitmap.Journal in the State:
// each frame carries the changes since the frame before.
//
// A broken frame ends the connection with an error of kind Protocol. A frame
// costs memory by the bytes received, not by the lengths that it claims.
//
// Ownership: a Request, Prompt or Generation belongs to the caller; the engine
// does not keep it after Prepare returns or after the stream ends. Events belong
// to the reader that took them.
package wire
