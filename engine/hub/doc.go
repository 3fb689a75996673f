// Package hub gets model files from the Hugging Face Hub, or from a server that
// speaks its API, into the cache folder that the Hub's own tools use.
//
// Goal: a reference such as hf:OWNER/REPO:Q4_K_M becomes the path of a complete
// file with the right checksum, or an error that says what to change. An
// interrupted download continues where it stopped. Both Forebay and the Hub's
// tools find cached files without a network.
//
// Non-goals: datasets and spaces, uploads, the Hub's chunked transfer (Xet; plain
// downloads serve the same files), and the contents of model files.
//
// Layout under Config.CacheDir, with one folder for each repository:
//
//	models--OWNER--REPO/
//	  blobs/ETAG              the bytes; ETAG is their SHA-256, or git's SHA-1 of a small file
//	  blobs/ETAG.incomplete   the bytes received so far
//	  refs/REVISION           the commit of a branch or tag
//	  snapshots/COMMIT/FILE   a link to the blob
//	  trees/COMMIT.json       the files of the repository at the commit
//	.locks/models--OWNER--REPO/ETAG.lock
//
// Invariants:
//
//  1. A blob without the suffix .incomplete is complete and checked.
//  2. A link in a snapshot is made after its blob, and a ref after all requested
//     links. So a ref always leads to complete files, even if the process dies.
//  3. A writer of an .incomplete file holds its lock. On a file system without
//     locks, all writers write the same bytes to the same places.
//  4. The token goes to the endpoint's own host and to no other.
//
// Ownership: a Hub holds no open files between calls and is safe for concurrent
// use. Progress and Warn are called on the caller's goroutine.
package hub
