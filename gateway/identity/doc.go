// Package identity says who sends a request: which tenant, by which key, and what
// that key may do.
//
// Goal: three proofs lead to one Caller. A key of the configuration or of a key
// file; a token (JWT) that a trusted issuer has signed; the client certificate that
// a trusted proxy has checked and names in the header x-forwarded-client-cert.
//
// A Snapshot holds everything that decides, and never changes. A Directory points to
// the present one, and a Source replaces it: a change of keys, tenants or rights
// holds as a whole or not at all, and a request is decided by the one Snapshot that
// it met first. What has started goes on when its key is revoked.
//
// Secrets: the key file holds a salted SHA-256 of each key. A key is 256 random
// bits, so a fast hash is as safe as a slow one. A key begins with its public id, by
// which it is found; the hashes are then compared in constant time. No error, log
// line or metric shows a key or a token.
//
// Non-goals: HTTP (gateway), the order of requests and their limits (admission).
//
// Ownership: the caller of Open runs Source.Run and ends it. A Directory's methods
// may be called from any goroutine.
package identity
