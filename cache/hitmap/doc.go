// Package hitmap says which blocks an engine can reuse, to those who are not
// the engine: a Set of block hashes, and the Journal of changes that keeps a
// copy of the set up to date.
//
// Goal: a reader finds out how much of a prompt need not be computed, without
// asking the engine. The engine's page pool writes each change into a Journal.
// The Journal travels in the step reports, a Reader takes from it what it has
// not heard yet, and a Set follows:
//
//	var reader hitmap.Reader
//	var set hitmap.Set
//	for each report {
//		set.Follow(reader.Read(&report.Blocks))
//	}
//	blocks := set.Match(hashes) // leading blocks that are held
//
// Promise: a Set never stays wrong. A Journal is bounded and forgets its oldest
// changes, but every change has a number. A reader that has not heard all
// changes notices by the numbers and starts afresh: it forgets all that it
// knew and keeps what the newest changes say. So a Set that followed every News
// in order holds no block that the engine did not hold at that moment. It may
// lack blocks after a fresh start, until they change again. (Two blocks with
// the same 64-bit hash are one to a Set, which then may lack the one that stays.)
//
// A Map is the same for many replicas: a block hash finds those that hold it. It
// follows the News of each under the replica's name, and takes a News that is Missed
// for a new epoch of that replica. It is bounded, and may keep one hash in several
// only: which ones is for its owner to choose.
//
// Not a goal: the pages themselves and their contents (package cache), requests
// that wait for a block (package admission), and how the changes of other replicas
// come here. What a reader needs beside the hash (a block's
// tokens) is fixed by the engine's page size, so that a Change stays two fields.
//
// Ownership: one goroutine writes a Journal. Copies of it may be read by any
// goroutine at any time. A Reader, a Set and a Map belong to one goroutine.
package hitmap
