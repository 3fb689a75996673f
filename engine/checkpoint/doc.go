// Package checkpoint opens models by path, whatever their format: a GGUF file, one
// of several parts, a folder with one of these, a folder as Hugging Face lays it out.
//
// Goal: one place that knows which files make a model, where its tokenizer is and
// where its chat template, so that serving and looking at a model read the same.
// A path that could mean two models is refused with their names.
//
// Non-goals: the formats themselves (gguf, hf), fetching a model, loading weights.
//
// Ownership: a Checkpoint owns its File, and closing it ends both. Tokenizers and
// templates are copies. OpenTokenizer and OpenChat keep nothing open.
package checkpoint
