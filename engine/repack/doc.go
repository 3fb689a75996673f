// Package repack keeps packed weights in files, one image for each model, kernel
// set and layout, so that the next start maps them instead of packing anew.
//
// Goal: an image gives exactly the bytes that packing would give, or is refused
// with the reason, and then the model is packed as if there was no image. A start
// never waits for an image to be written.
//
// Non-goals: what the bytes mean (kernels), which matrices a model has
// (engine/model), what belongs into a key (engine). An image is no exchange format:
// it is made and read on one machine, and its directory is trusted as much as the
// program's own files are.
//
// # The file
//
// Numbers are little-endian.
//
//	magic "FBREPACK" │ version, key bytes, entries, 0: uint32 │ file bytes: uint64
//	key
//	entries: name hash uint64, type, rows, columns, 0: uint32, offset, bytes, data hash: uint64
//	hash of all before: uint64
//	data of the entries, each at a multiple of 64 bytes
//
// Hashes are 64 bits of XXH3: they find what a disk or a crash broke, not what
// somebody forged. The header's is checked when an image is opened, the data's by
// Check, which reads the whole file once: on all workers that runs at the speed of
// memory, and every page is then resident.
//
// # Writing
//
// An image is written under another name, flushed to the disk and renamed. The
// writer holds a lock on the unfinished file as long as it lives: another engine
// that would write the same image leaves it to the first, and what a killed writer
// left is overwritten or removed by the next. Writing rests between pieces, and
// pieces are as large as huge pages: a file system that keeps them whole lets the
// image be mapped with huge pages.
//
// Ownership: the caller closes an Image after the last use of its matrices.
// Removing an image that others have mapped takes nothing from them.
package repack
