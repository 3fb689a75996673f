// Package tokenizer turns text into a model's token ids and back, exactly as
// the model's makers did: byte-level BPE, SentencePiece's BPE and BPE over
// characters, read from GGUF metadata or from tokenizer.json.
//
// Goal: the right ids or an error that names what is not known; a wrong
// pre-tokenizer gives fluent nonsense, so nothing is guessed. Linear or
// n log n on every input, however hostile, and it stops when nobody waits.
//
// Not here: chat templates (engine/chat), cutting text for clients
// (engine/text), other tokenizer models (unigram, WordPiece).
//
// Use: FromGGUF or FromJSON once; then Encode, Bytes and the rest from any
// goroutine. A Cache encodes only what is new of a text that grows.
//
// The way of a text: pieces between special tokens (special.go), cut by the
// pre-tokenizer's splitters (split.go, pretokenizer.go), merged by one of three
// encoders (bpe.go, spm.go, charbpe.go) in working memory of its own (scratch.go).
//
// To add a pre-tokenizer: a line in pretokenizers for its name in GGUF, one in
// patterns for its regular expression in tokenizer.json, a splitter if it is new,
// and its pieces of random texts, cut by the tokenizers library, in testdata.
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
