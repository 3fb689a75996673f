// Package engine runs a language model for many requests at once.
//
// Goal: the step. One goroutine owns every sequence and the page pool, and
// turns as long as there is work: take arrivals, schedule, forward, sample,
// report (loop.go reads in that order). Requests join and leave a running
// batch at any step; a long prompt enters in chunks that fit the step's time
// budget; what is already computed is not computed again; and whoever shares
// the batch, the same request gives the same bits.
//
// Not a goal: deciding who may run. The gateway orders and refuses; the engine
// takes what it is given, holds a short list of what does not fit yet, and
// says in State what it has room for. Nor HTTP, nor client JSON.
//
// Use:
//
//	e, err := engine.New(engine.Config{Model: "model.gguf"}) // zero Config: the demo model
//	p, err := e.Prepare(ctx, request)                        // any goroutine; no model work
//	s := e.Generate(&wire.Generation{Prompt: p, …})          // returns at once
//	e.Drain(ctx); e.Close()
//
// Who owns what: Prepare and Generate run on their callers' goroutines and
// touch only what is fixed after New, and the inbox. The loop owns all else.
// Streams carry events out, the inbox carries generations and their controls
// in; both are bounded. Pages belong to sequences, through package kv; the
// model's memory belongs to package model.
//
// Files: loop.go is the path of a step, in which engine/step decides what is
// computed; supply.go who gets pages, emit.go what leaves, inbox.go what comes
// in, prepare.go and options.go the checks before; benchmark.go and costfile.go
// what is known of a step's cost before the first; spent.go what a generation's
// time went to, record.go and capture.go what is told of steps and launches.
package engine
