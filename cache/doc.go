// Package kv keeps the books of the engine's KV cache: which fixed-size pages
// hold which tokens, who uses them, and which may be reused or evicted.
//
// Goal: every prefix that is already computed is attached instead of computed
// again, whoever computed it and whether or not they are still running; no
// page is lost, shared by mistake or reused under a wrong key; a step in
// steady state allocates nothing.
//
// Not a goal: the numbers. The pool knows page ids and token ids; the model
// owns the memory and does the copies that Reserve asks for. Nor scheduling:
// the pool says what fits and what is worth waiting for, the loop decides.
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
// A block is a full page whose every token is computed. Its identity is its
// parent block and its tokens; a first block's is its salt and its tokens. The
// 64-bit chained hash only finds it: a hit compares identity, so a collision
// costs time and never gives wrong contents.
//
// Duplicates: when a sequence completes a block that exists already, the older
// page is kept, the sequence is moved to it, and the newer page is freed. The
// engine is bit-invariant, so both hold the same bits.
//
// Ownership: one goroutine, the engine's loop, owns a Pool and its Seqs. Only
// Match, BlockHashes and Fits may be called by others. Misuse that would
// corrupt the books (a commit without room, a second Close) panics.
package cache
