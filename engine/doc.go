// Package engine runs a language model for many requests at once.
//
// Goal: the step. One goroutine owns every sequence and the page pool, and
// turns as long as there is work: take arrivals, compose, forward, sample,
// report (loop.go reads in that order). Requests join and leave a running
// batch at any step. A long prompt enters in chunks that fit the step's time
// budget. A prefix that is cached is not computed again. The same request gives
// the same bits, whatever else is in the batch.
//
// Not a goal: deciding who may run. The gateway orders and refuses requests; the
// engine takes what it is given, keeps a short waiting list, and says in State
// what it has room for. Nor HTTP, nor client JSON.
//
// Use:
//
//	e, err := engine.New(engine.Config{Model: "model.gguf"}) // zero Config: the demo model
//	p, err := e.Prepare(ctx, request)                        // any goroutine; no model work
//	s := e.Generate(&wire.Generation{Prompt: p, …})          // returns at once
//	e.Drain(ctx); e.Close()
//
// Ownership: Prepare and Generate run on their callers' goroutines and touch
// only fields that are fixed after New, and the inbox. The loop owns the rest:
// its supply the lists of sequences and the page pool, its ledger the accounts.
// The inbox carries generations and their controls in, streams carry events
// out; both are bounded. Package cache owns the pages of each sequence, package
// model the numbers in them.
//
// Files:
//
//	prepare.go, room.go                requests to prompts
//	engine.go, load.go, repackimage.go construction
//	benchmark.go, costfile.go          the cost of steps before the first step
//	inbox.go, loop.go, emit.go         the path of a step: in, through, out
//	grammars.go, lead.go               what answers are held to
//	constrain.go, ahead.go             masks, and when they are found
//	restrict.go                        which tokens options allow
//	sequence.go                        generations and their choices
//	supply.go, pages.go                who runs, who holds pages, who is preempted
//	ledger.go, account.go              the cost of steps, the time of generations
//	record.go, launches.go, labels.go  what is told of steps
package engine
