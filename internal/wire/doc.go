// Package wire is the contract between gateway and engine: the types that
// cross it, the promises on them, and the frames that carry them over a Unix
// socket.
//
// Goal: both sides compile against this package alone and never against each
// other. A generation is a Stream of Events; the engine sends one frame a
// step, so that cost grows with steps and not with tokens times streams; a
// slow reader parks its own generation and nothing else.
//
// Not a goal: a public protocol. The version in the hello must match exactly;
// gateway and engine are the same binary.
//
// Ownership: a Request, Prompt or Generation belongs to the caller and is not
// kept by the engine after Prepare returns or after the stream ends. Events
// belong to whoever took them.
package wire
