// Package cache keeps the books of the engine's KV cache: which fixed-size
// pages hold which tokens, which sequences use them, and which pages may be
// reused or evicted.
//
// Goal: a prefix that some sequence has computed is attached and not computed
// again, whether that sequence still runs or has ended; no page is lost, shared
// by mistake or reused under a wrong key; a step in steady state allocates
// nothing, except the memory of the journal once in some thousand changes.
//
// Not a goal: the keys and values themselves. The pool knows page ids and token
// ids; the model owns the memory and does the copies that Reserve asks for. Nor
// is scheduling: the pool says what fits and which block is worth waiting for,
// and the engine's loop decides. What others may know of the pool is in package
// hitmap: the pool writes a journal of its blocks, and a copy of it goes out
// with each step.
//
// A step of the loop, for a sequence s whose prompt and output are tokens:
//
//	s := pool.Open(salt, tokens)              // attaches what is cached
//	if !pool.Claim(s, tokens) { wait }        // another sequence computes its next block
//	copies, ok := pool.Reserve(s, n, copies)  // make room for the next n tokens
//	for _, c := range copies { model.CopyPage(c.Dst, c.Src) } // in order, before Forward
//	model.Forward(… s.Pages() …)
//	pool.Commit(s, tokens[s.Len():s.Len()+n]) // their keys and values exist now
//	pool.Close(s)                             // whole blocks stay cached
//
// Where layers with windows have pages of their own, windows.go has their books: Forward then
// needs s.WindowTables() too, and copies of pages are of all kinds.
//
// Models with recurrent layers have states beside pages: states.go has their books. Before
// Open and Fork of such a pool ask HasState; do the StateCopies after the copies of pages,
// and give Forward s.State() and s.Checkpoints().
//
// A block is a full page whose tokens are all computed. Its identity is its
// parent block and its tokens; the identity of a first block is its salt and
// its tokens. The 64-bit chained hash (Hasher) only finds a block: a hit
// compares identity, so a collision costs time and never gives wrong contents.
//
// Duplicates: when a sequence completes a block that exists already, the older
// page is kept, the sequence moves to it, and the newer page becomes free. The
// engine computes the same bits in any batch, so both pages hold the same bits.
//
// Ownership: one goroutine, the engine's loop, owns a Pool and its Seqs. Other
// goroutines may call Match, Hasher and Fits, and read copies of the journal.
// Misuse that would corrupt the books (a commit without room, a second Close)
// panics.
package cache
