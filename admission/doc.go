// Package admission decides who may start now, who waits, and who is told at
// once that it cannot be served in time.
//
// Goal: the gateway hands in the Demand of a request and gets a Ticket, or a
// Refusal with its reason and a predicted wait. A ticket waits its turn, may be
// given up at any moment, and is settled exactly once with Done. Whoever people
// wait for comes first, the less urgent get what is left and never less than
// their floor, tenants share by engine time, and who is admitted with a goal
// keeps it.
//
// Non-goals: HTTP (gateway), budgets (admission/budget), and what the engine
// puts into a step (engine/step, which it shares).
//
// Ownership: a Scheduler is pure and belongs to one goroutine; time is an
// argument, so that the simulator runs the very same code. Queue adds the lock,
// the clock and the timer. An Entry belongs to its Scheduler until Done.
//
// A request's way through the files: policy.go says who asks and in which class,
// screen.go what can be refused at a glance, overload.go what happens when predictions fail, price.go what it
// costs, feasible.go whether all goals can still be kept and who gives way,
// next.go who starts, fair.go what tenants and classes owe each other, engine.go
// what the engine was given and has told, lengths.go how long answers will be.
package admission
