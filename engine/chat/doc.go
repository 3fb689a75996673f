// Package chat renders a conversation with the model's own chat template.
//
// Goal: the exact text that the model was trained on. No text of a user can pass
// as text of the template.
//
// Non-goals: the template language (engine/jinja), tokens (engine/tokenizer), and
// the checks of a client's request (gateway).
//
// Use: call New once, when the model is loaded; its error says why the model
// cannot chat. Then call Render from any goroutine. A Template never changes.
//
// Messages, tools and options are the client's JSON. The template sees their keys
// in the client's order. Messages are first changed to the shape that the
// template supports:
//
//   - Content with one text part becomes a string. Several parts stay parts if
//     the template supports parts for the role, and are joined without a separator
//     otherwise. If it supports only parts, a string becomes one part.
//   - The arguments of a tool call are JSON text in the protocol. They become an
//     object, unless the template supports only text.
//   - Calls get the ids that Input.Format accepts, and so do their results, which also get
//     the name of the tool where they have none.
//   - What a template does not render of tools is written by Input.Polyfill.
//   - Content that is null or absent becomes the empty string. Beside tool calls it
//     becomes null if the template supports that.
//   - A tool without description or parameters gets empty ones, if the template needs
//     them.
//   - Reasoning is set under both names that templates read, reasoning_content and
//     thinking.
//   - The role "developer" becomes "system" if the template does not know it.
//
// New finds out what a template supports by rendering small examples.
//
// In every string of messages, tools and options, and of JSON that the template
// parses, a tokenizer.Guard is put before text that would be a control token. The
// same holds for text that the template's own text could complete to one: the
// beginning of a control string at the end of the string, the end of one at its
// beginning, and the middle of one if it is the whole string and not a plain word
// (roles are such words). The tokenizer drops the Guards. A template that cuts
// strings into pieces can still defeat this.
//
// The limits of Render bound a template's work, and ctx bounds its time.
package chat
