// Package shared tells the replicas of a service what each of them holds, and how
// loaded each is, through one Redis, or by asking each other (direct.go).
//
// Goal: a reader finds in its own memory, without asking anybody, how much of a
// prompt each replica holds. What it finds is at most some intervals old. Nothing
// that Redis does, or does not do, holds up a request.
//
// Non-goals: what a report of load says, and where a request goes (gateway/siblings).
//
// How it works. Once in an interval each replica makes one round trip, which sends
// its own news and fetches those of the others:
//
//	PREFIX:siblings:{SPACE}:log         a stream: a batch of changed blocks of one replica an entry
//	PREFIX:siblings:{SPACE}:loads       a hash: the last report of each replica
//	PREFIX:siblings:{SPACE}:blocks:NAME all blocks of a replica, written when one asks for them
//	PREFIX:siblings:{SPACE}:secret      what replicas without a secret of their own agree on
//
// A space is the set of replicas whose answers and block hashes are the same: of one
// model, kernel set and page size. Every key of a space expires when nobody writes.
//
// Every batch has the epoch of the replica's engine and a number. A replica with a
// new epoch holds nothing. A reader that misses a number forgets the replica's
// blocks and asks for all of them, by an entry of the log; the replica then writes
// them down once for all who ask. A reader asks few replicas at a time, and reads less
// of the log at a time while round trips fail, so that what it reads fits their limit. So a claim is never older than a gap, and a Redis
// that lost everything is repaired by the next batches.
//
// A block takes 6 bytes in the log, where the newest LogMax batches are kept, and 6
// more for a short time when somebody asks for all. Of every so many blocks (the grain)
// one is sent, chosen by its hash, so all replicas choose the same ones. Since an engine
// that holds a block holds all before it, that tells to within about a grain how much of
// a prompt is held, and never too much. The hashes are encrypted by a key made from the
// secret: whoever reads Redis without it cannot test whether a prompt was asked.
//
// The law of growth, for n replicas that each change c blocks a second, and an interval
// of t seconds: n/t round trips a second, n·6·c/grain bytes a second written, and n
// times that read, besides reports: of these each replica reads LoadsMax at a time.
//
// Reports have no clock: a replica is alive while its report changes.
package shared
