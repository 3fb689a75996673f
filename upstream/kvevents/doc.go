// Package kvevents follows what another inference server says of its cache of prompts:
// the events BlockStored, BlockRemoved and AllBlocksCleared that vLLM, SGLang and their
// like publish over ZeroMQ.
//
// Goal: for a prompt whose tokens are known, say how many of its first tokens the server
// need not compute. The hashes of the servers are not computed here, since each event
// brings the tokens of its blocks and the block before: every block gets a key of ours,
// chained with the key before it, and the server's hash only serves to find it when
// it is removed.
//
// Promise: what is claimed was held when the newest event was made. Events have
// numbers. After a gap, a restart or an event that cannot be read, the missing events are
// asked for where the server keeps them (Config.Replay), and else everything is forgotten. A gap is seen by the
// event after it. What is published while the subscription is still on its way is asked for once more after
// Config.Settle. What is missing from the view makes a claim shorter, never longer: View.Whole says that nothing is.
//
// Non-goals: caches on disk or beyond the server, blocks with adapters or images (they
// get keys that no prompt has), and groups of layers that are not of full attention.
//
// Ownership: Run is one goroutine; all other methods may be called from any.
package kvevents
