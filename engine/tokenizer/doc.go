// Package tokenizer converts text to a model's token ids and back, exactly as in
// the model's training: byte-level BPE, SentencePiece BPE and unigram, BPE over
// characters, and WordPiece, read from GGUF metadata or from tokenizer.json.
//
// Goal: the right ids, or an error that names the unknown feature. A wrong
// pre-tokenizer gives fluent nonsense, so nothing is guessed. Work is linear or
// n log n on every input, even a hostile one, and stops when its context ends.
//
// Non-goals: chat templates (engine/chat), and cutting text for clients (engine/text).
//
// Use: call FromGGUF or FromJSON once, then Encode, Bytes and the rest from any
// goroutine. A Cache encodes only the new part of a growing text.
//
// Stages of encoding: special.go cuts the text at special tokens; the
// pre-tokenizer's splitters cut each part into pieces (split.go, pretokenizer.go);
// an encoder makes tokens of each piece (bpe.go, spm.go, charbpe.go, unigram.go,
// wordpiece.go) in reused working memory (scratch.go).
//
// To add a pre-tokenizer: a line in pretokenizers for its name in GGUF, a line in
// patterns for its regular expression in tokenizer.json, a splitter if it is new,
// and in testdata the pieces that the tokenizers library cuts random texts into.
//
// # Control tokens and what users type
//
// Control tokens such as the end of a turn are recognised in text only with
// ParseSpecial, which is for rendered chat templates. A template mixes its own text
// with the user's. So the caller Escapes the user's text and puts a Guard before
// every control string in it. The string then does not match, and Encode drops the
// Guards, so the model reads the characters as typed. User-defined tokens are
// normal vocabulary and always recognised.
package tokenizer
