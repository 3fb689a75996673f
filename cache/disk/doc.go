// Package disk keeps the keys and values of blocks in files, so that a prefix that has
// left the pages of the engine, or was there before the engine ended, is read and not
// computed again.
//
// Goal: what Take returns is bit by bit what Put was given for the same block, or it
// returns nothing. A file that is cut, damaged, foreign or of another key is counted and
// passed over; a disk that is full or slow costs blocks, and never time of the caller.
//
// Non-goals: which blocks are worth keeping or reading (engine), and what a block means
// (cache). A Store knows blocks by their two hashes and their bytes, which have one length.
//
// A folder has a subfolder for each space, and in it segments: files with a header and
// records of one size, written from the front. The oldest segments go first where the
// folder grows over its limit, those of other spaces before all.
//
// Ownership: one process has a folder at a time. A Store has two goroutines of its own, a
// writer and a reader; Close ends both. Any goroutine may call the methods.
package disk
