// Package calls reads what a model writes: reasoning, content and tool calls, in
// the format of its family.
//
// Goal: a client gets the calls that the model meant, as they come, and the same
// ones however the text is cut into pieces. No text of a model is an error.
//
// Non-goals: the client's JSON (gateway), the rendering of a prompt (engine/chat),
// and the choice of tokens (engine/grammar).
//
// A Format is data: markers, shape, keys, ids. There is one machine for each Shape,
// and a row of Formats for each family. Bind resolves the markers of a format for a
// vocabulary: one that is a single token is then matched by its id alone, and its
// characters from other tokens are text.
//
// Use: NewParser for each answer, Feed for each token, Finish at its end. Events
// carry slices of the parser's own buffer, which the next call overwrites.
//
// Promises:
//
//   - The joined events depend on the text alone, not on its pieces.
//   - Only the beginning of what may be a marker is held back. Where a format has
//     no marker, or names one that is also prose, text waits until it is proven to
//     be calls of known tools: then it is sent as calls, else as text.
//   - CallStart has the name whole, and an id that no other call of the answer has.
//   - The Args of a call that ended are JSON, if the model wrote JSON: it passes byte
//     for byte, but for control characters in strings (escaped) and brackets that the
//     closing marker cuts off (closed). No arguments at all are {}. Values without
//     types get those of the tool's schema.
//   - What begins as a call and is none becomes text, and Result.Fallbacks counts it.
//   - Memory is bounded by Limits, whatever comes.
package calls
