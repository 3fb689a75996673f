// Package hub gets model files from the Hugging Face Hub, or from a server that
// speaks its API, into the cache folder that the Hub's own tools use.
//
// Goal: a reference such as hf:OWNER/REPO:Q4_K_M becomes the path of a file that
// is whole and whose checksum is right, or an error that says what to change. A
// download that broke off goes on where it stopped. What is cached is found
// again without a network, by us and by the Hub's tools alike.
//
// Non-goals: datasets and spaces, uploads, the Hub's chunked transfer (Xet; the
// plain route serves the same files), reading what is in a model file.
//
// Layout, under Config.CacheDir, with one folder a repository:
//
//	models--OWNER--REPO/
//	  blobs/ETAG              the bytes; ETAG is their SHA-256, or git's SHA-1 of a small file
//	  blobs/ETAG.incomplete   as much as has come
//	  refs/REVISION           the commit that a branch or tag was at
//	  snapshots/COMMIT/FILE   a link to the blob
//	  trees/COMMIT.json       what the repository has at the commit
//	.locks/models--OWNER--REPO/ETAG.lock
//
// Invariants:
//
//  1. A blob without the suffix .incomplete is whole and was checked.
//  2. A link in a snapshot is made after its blob, and a ref after all links
//     that were asked for: so what a ref leads to is complete, whenever the
//     process dies.
//  3. Writers of one .incomplete file hold its lock. Where a file system has no
//     locks they still write the same bytes at the same places.
//  4. The token goes to the endpoint's own host and to no other.
//
// Ownership: a Hub holds no open files between calls and may be used by many
// goroutines. Progress and warnings are called on the goroutine of the caller.
package hub
