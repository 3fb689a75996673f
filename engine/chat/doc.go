// Package chat renders a conversation with the model's own chat template.
//
// Goal: the exact text that the model was trained on, with nothing in it that
// a user could pass off as the template's.
//
// Not here: the template language (engine/jinja), tokens (engine/tokenizer),
// what a client may send (the gateway has checked the shape).
//
// Use: New once, when the model is loaded; its error says why a model cannot
// chat. Then Render from any goroutine. A Template never changes.
//
// Messages, tools and options arrive as the client's JSON and reach the
// template with their keys in the client's order. Before that, messages are
// brought into the shape that the template takes:
//
//   - Content given as one text part becomes a plain string. Several parts
//     stay parts where the template handles parts for that role, and are
//     joined with nothing between them where it does not. Where it handles
//     parts alone, a string becomes one part.
//   - The arguments of a tool call, a JSON text in the clients' protocol,
//     become an object, unless the template only takes a text.
//   - Content that is null or absent becomes the empty string, or null beside
//     tool calls where the template takes that.
//   - Reasoning goes under both names that templates read, reasoning_content
//     and thinking.
//   - The role "developer" becomes "system" in a template that does not know it.
//
// What a template handles is found out in New by rendering small examples.
//
// In every string of messages, tools and options, and of what the template reads
// from JSON, strings that would be control tokens get a tokenizer.Guard before
// them. So does what template text around the string could complete: a beginning
// of a control string at its end, an end of one at its beginning, or a middle
// that is the whole string and more than a word, for roles are such words. The
// tokenizer drops the Guards. A template that takes strings apart in its own
// ways can still get round this.
//
// A template's work is bounded by the limits of Render, its time by ctx.
package chat
