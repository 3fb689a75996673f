// Package gguf reads GGUF model files, single or split: metadata, the tensor
// directory and the tensors' bytes, without copying them. It also builds a File
// from other data (Draft), and writes one (Write).
//
// Goal: any file is either read exactly or refused with an error that names the
// file, the byte and the field. Every count in a file is checked against the bytes
// that are left before memory is allocated for it, so a file never costs more
// memory than its size suggests.
//
// Non-goals: what a model is (engine/model decides which keys and tensors it
// needs), computing with tensors, and big-endian files.
//
// Use: Open a path or Parse bytes. Read metadata with the typed getters and
// tensors with Tensor. A getter returns (value, present, error). An absent key is
// not an error; a key of another type is, and the error names both types.
//
// Ownership: a File owns the mapping. Tensor.Data points into it and must not be
// used after Close; the strings and slices of the getters are copies. A File does
// not change after Open and is safe for concurrent reads. Truncating the file
// while it is mapped ends the process: replace model files by renaming.
package gguf
