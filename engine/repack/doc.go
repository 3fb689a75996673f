// Package repack keeps packed weights in files. There is one image for each
// model, kernel set and layout, and the next start maps it instead of packing
// again.
//
// Goal: an image gives exactly the bytes that packing would give. Otherwise it is
// refused with the reason, and the model is packed as without an image. A start
// never waits until an image is written.
//
// Non-goals: the meaning of the bytes (kernels), which matrices a model has
// (engine/model), and the contents of a key (engine). An image is not an exchange
// format: one machine writes and reads it, and trusts its directory as it trusts
// the program's own files.
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
// Hashes are 64 bits of XXH3. They detect damage by a disk or a crash, not
// forgery. Open checks the header's hash. Check checks the data's hashes: it
// reads the whole file once, on all workers at the speed of memory, and leaves
// every page in memory.
//
// # Writing
//
// A writer writes an image under another name, flushes it to the disk and renames
// it. It holds a lock on the unfinished file while it lives, so a second engine
// does not write the same image, and the next writer overwrites or removes what a
// killed writer left. Writing pauses between pieces. Pieces are as large as huge
// pages, so that a file system can map the image with huge pages.
//
// Ownership: the caller closes an Image after the last use of its matrices.
// Removing an image does not affect processes that have mapped it.
package repack
