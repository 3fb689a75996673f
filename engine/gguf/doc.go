// Package gguf reads GGUF model files, one or several that belong together:
// metadata, tensor directory and the tensors' bytes, without copying them. It also
// makes the same File of what other packages have (Draft), and writes one (Write).
//
// Goal: a file that comes from anywhere is either read exactly or refused with
// an error that names the file, the byte and the field. Every count in a file
// is checked against the bytes that are left before anything is allocated for
// it, so a file never costs more memory than its size suggests.
//
// Non-goals: knowing what a model is (engine/model decides which keys and
// tensors it needs), computing with tensors, big-endian files.
//
// Use: Open a path or Parse bytes, read metadata through the typed getters and
// tensors through Tensor. A getter answers (value, present, error): a key that
// is absent is no error, a key of another type is one that names both.
//
// Ownership: a File owns the mapping. Tensor.Data points into it and dies with
// Close; the strings and slices that getters return are copies and do not. A
// File does not change after Open and may be read by many goroutines. As with
// every memory-mapped file, truncating the file under a running process is
// fatal to that process: replace model files by renaming.
package gguf
