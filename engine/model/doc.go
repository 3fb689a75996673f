// Package model computes a language model's logits: one forward pass, built
// from a description of the architecture.
//
// Goal: a GGUF file is either computed exactly as its makers meant or refused
// by name. A Config describes what the pass must do; architectures maps a
// file's general.architecture to the function that reads the Config. Every key
// under the architecture's prefix and every tensor must be understood: one that
// is left over is an error, since it would change the numbers.
//
// Non-goals: which tokens run when (engine), which page holds what (cache),
// arithmetic (kernels).
//
// Use: Load, then Forward with the chunks of one step; logits come back in the
// order of the chunks. A Timer, where one is set, hears how long each phase took.
//
// A Model holds what a step reads, weights and shapes, and the pages. Its pass
// holds what a step changes: the rows, the layer it is in, the buffers. Files:
// forward.go is the pass in the order of the paper, attention.go, latent.go and
// recurrent.go are what mixes tokens, pass.go what runs it all on the team, batch.go and contexts.go how a batch is cut into work.
//
// To add an architecture: a row in architectures (config.go) and a function in
// config_families.go, config_dense.go, config_mixtures.go or config_recurrent.go, which
// sets the fields of Config, and of a Layer where layers differ. Where the pass itself
// differs, Config or Layer gets a field, and one place obeys it:
//
//	tensors, their names, biases, norms   layer and loader.layer (weights.go)
//	which experts, and their weights      Router (router.go)
//	latent attention                      Latent and latent.go
//	several residual streams              AltUp and altup.go
//	convolutions and states               Recurrent and recurrent.go
//	experts                               loader.experts and mixture (experts.go)
//	norms of queries and keys             place, before or after Rotate
//	kinds of rope and their scaling       readRope (config_rope.go)
//	windows, chunks, sinks, caps          attend and aim
//	norms after a block                   addSum
//	activations                           activate
//	scales and caps of logits             outputLogits
//
// A bias is understood wherever a matrix may have one.
//
// Ownership: the caller owns the file, the team and the page tables; the file
// must outlive the Model, whose weights may point into it. A Model belongs to
// one goroutine: Forward, CopyPage and CopyState must not run concurrently.
//
// Invariants, held by tests:
//  1. Bit invariance. One worker computes each output number whole from its own
//     inputs, so that logits do not depend on how a prompt is cut into calls,
//     on what else is in the batch, on the pages or on the team's size. A state moves
//     on token by token, in prompts too.
//  2. Forward allocates nothing, with a Timer or without.
//  3. Memory of pages that were never written is not resident.
package model
