// Package admission decides who may start now.
//
// Goal: the gateway hands in the Work of a request and gets a Ticket, or a
// Refusal with its reason and a predicted wait. A ticket waits its turn, may
// be given up at any moment, and is settled exactly once with Done.
//
// Non-goals: HTTP, and what the engine puts into a step. Standing in today is
// a bounded first-in-first-out queue; classes, tenants, budgets and cost
// order come behind the same interface.
//
// Layout: queue.go is the pure core, which takes now as an argument; fifo.go
// adds the lock and the one timer that ends waits.
package admission
