// Package tokenizer turns text into a model's token ids and back, exactly as
// the model's makers did: byte-level BPE ("gpt2") and SentencePiece BPE
// ("llama"), read from GGUF metadata.
//
// Goal: the right ids or an error that names what is not known; a wrong
// pre-tokenizer gives fluent nonsense, so nothing is guessed. Linear or
// n log n on every input, however hostile.
//
// Not here: chat templates (engine/chat), cutting text for clients
// (engine/text), other tokenizer models.
//
// Use: FromGGUF once; then Encode, Bytes and the rest from any goroutine.
//
// # Control tokens and what users type
//
// Control tokens (end of turn and the like) are recognised in text only with
// ParseSpecial, which is meant for rendered chat templates. A template mixes
// its own text with the user's, so whoever fills it Escapes what the user typed
// and puts a Guard before every control string in it: the string no longer
// matches, and Encode drops the Guards afterwards, so the model reads the
// characters as typed.
// User-defined tokens are plain vocabulary and are recognised always.
package tokenizer
