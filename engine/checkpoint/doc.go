// Package checkpoint opens models by path, in any supported format: a GGUF file,
// a split GGUF file, a folder with one of these, or a Hugging Face folder.
//
// Goal: one place knows which files make a model and where its tokenizer and chat
// template are, so that serving a model and inspecting it read the same files. A
// path that could mean two models is refused with their names.
//
// Non-goals: the formats themselves (gguf, hf), fetching a model, loading weights.
//
// Ownership: a Checkpoint owns its File, and closing it ends both. Tokenizers and
// templates are copies. OpenTokenizer and OpenChat keep nothing open.
package checkpoint
