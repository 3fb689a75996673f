// Package quant quantises the weights of a model. A quantised model is a view:
// each tensor is converted when it is read.
//
// Goal: files that every GGUF program reads, with a root mean square error no
// larger than that of llama.cpp's quantiser without an importance matrix. The
// same numbers always give the same bytes.
//
// Non-goals: importance matrices, mixtures that give layers different types, and
// types that are not in Types.
//
// Ownership: the result of File reads the original file, and must not be used
// after that is closed.
package quant
