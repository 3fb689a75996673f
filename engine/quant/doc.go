// Package quant stores numbers in fewer bits: whole models, as a view that is made
// tensor by tensor when it is asked for.
//
// Goal: files that every program of the format reads, with an error (root mean
// square) no larger than that of llama.cpp's own quantiser without an importance
// matrix. The same numbers always give the same bytes.
//
// Non-goals: importance matrices, mixtures that give layers different types, and
// types that are not in Types.
//
// Ownership: a File of File reads the file that it was made of, and lives no longer.
package quant
