// Package wire is the contract between gateway and engine: the types that
// cross it, the promises on them, and the frames that carry them over a Unix
// socket.
//
// Goal: both sides compile against this package alone and never against each
// other. A generation is a Stream of Events; the engine sends one frame a
// step, so that cost grows with steps and not with tokens times streams; a
// slow reader parks its own generation and nothing else.
//
// Not a goal: a public protocol. The protocol number in the hello must match;
// gateway and engine are the same binary.
//
// The engine's side listens and serves, the gateway's side dials; a Client is
// an Engine like any other, and connects again by itself:
//
//	ln, err := wire.Listen(path)
//	err = wire.Serve(ctx, ln, engine, wire.ServerConfig{})
//
//	client, err := wire.NewClient(wire.Config{Path: path})
//	err = client.WaitReady(ctx)
//
// Flow: a dispatch tells the engine how many events its reader has room for.
// Each event costs one, each acknowledgement gives some back, and the server
// takes from the engine's stream only what it may send, so that the engine's
// own bound parks the generation. A sequence has exactly one End on the wire,
// a cancelled one too, so both sides agree at every moment which are live.
//
// Each step leaves a StepRecord: who was in it, who was not and why, and what
// its kernels took. The engine keeps the last ones in a StepLog, frames carry
// them in order, and the Client keeps a StepLog of its own, so that both sides
// are read the same way, by State.Steps. A step is in the log before the events
// of its End can be read; one that was lost on the way, since the reader was far
// behind, leaves a gap in the numbers.
//
// A broken frame ends the connection with an error of kind Protocol; a frame
// costs memory by the bytes received, not by the lengths it claims.
//
// Ownership: a Request, Prompt or Generation belongs to the caller and is not
// kept by the engine after Prepare returns or after the stream ends. Events
// belong to whoever took them.
package wire
