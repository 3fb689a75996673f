// Package admission decides which request may start now, which waits, and which
// is told at once that it cannot be served in time.
//
// Goal: the gateway hands in the Demand of a request and gets a Ticket, or a
// Refusal with a reason and a predicted wait. A ticket waits for its turn, may be
// given up at any moment, and is settled exactly once with Done. Requests that
// people wait for go first. Less urgent ones get what is left, and never less
// than their floor. Tenants share by engine time. A request that is admitted with
// a goal keeps it.
//
// Non-goals: HTTP (gateway), budgets (admission/budget), and what the engine puts
// into a step (engine/step).
//
// Ownership: a Scheduler is pure and belongs to one goroutine; time is an
// argument, so the simulator runs the same code. Queue adds the lock, the clock
// and the timer. An Entry belongs to its Scheduler until Done.
//
// # Order
//
// Within a level requests go by a key, the smallest first:
//
//	key = arrival + min(aging × cost, cap)
//
// cost is engine time: the prefill of what is not cached and, as far as running
// places or memory are scarce, the decoding. The smallest cost first would give
// the least mean wait (Smith 1956), but a large request would starve while small
// ones keep coming. First come, first served starves nobody, but a short request
// waits behind every long one. The key lies between them: aging 0 is the second
// rule, a very large aging the first.
//
// The bound: a request that arrives after another's key has a larger key. So a
// request of cost c is passed only by requests that arrive within aging × c after
// it, or within cap if that is less; with aging 2, a request that takes 0.5 s is
// passed for one second. cap is the class's age_cap, or its goal if that is
// longer. On arrival a request goes behind those that it would make late: its key is
// raised to just after theirs, which is within their bound, and so its own. From then
// on a key changes only with the price, so heaps and sorted blocks hold the order.
//
// # Fair queueing
//
// Tenants share a class by engine time, not by number of requests. Each has a
// deficit: the engine time that it may still take. What starts is charged with
// what it is expected to use, and corrected when it ends. Of the tenants with a
// deficit above 0, the request with the smallest key goes first. Where no waiting
// tenant has a deficit above 0, all of them get the same number of quanta, times
// their weight: as many as bring the first one above 0.
//
// The bound: let U be the largest charge of a request and Q a tenant's quantum,
// and leave corrections aside. A tenant is charged only while its deficit is
// above 0, so the deficit of a waiting tenant stays above -U; it gets quanta only
// at 0 or below, so it stays within Q. Over any time in which two tenants of the
// same weight wait, both get the same number of quanta, and
//
//	service = quanta × Q + deficit before - deficit after
//
// so their service differs by 2(U+Q) at most. This is deficit round robin
// (Shreedhar and Varghese, SIGCOMM 1995) with a choice among all who may go
// instead of turns, as in DLPM (arXiv 2501.14312), which chooses by the longest
// cached prefix and has the same bound. A refund may raise a deficit to 2Q. A
// tenant that comes back begins with Q at most: it earns nothing while it wants
// nothing.
//
// Classes owe each other in the same way: of each charge, a class with waiting
// requests earns its floor's part as credit, and with half a quantum of credit it
// passes more urgent ones.
//
// # Goals
//
// On arrival a forecast plays the engine's steps to come and predicts e's first
// token. It is let in if that is in time and makes nobody late who was let in
// before; promise.go has the rules, and ADR 0022 the reasons. Then it is promised
// its goal, and keeps its place unless the engine becomes slower.
//
// # Files
//
// A request's way: policy.go says which tenant asks and in which class, screen.go
// what can be refused without a forecast, unprepared.go what can be before its prompt is
// prepared, price.go what the request costs,
// lengths.go how long its answer will be, forecast.go and course.go when it will
// have its first token, promise.go whether that is promised, by what its tenant has
// asked for (asked.go), how long an overload lasts (standing.go) and how true
// predictions were (margin.go). next.go says which request starts, fair.go what
// tenants and classes owe each other, engine.go and flight.go what the engine was
// given and has told, revoke.go which promise is taken back, overload.go what
// happens when predictions fail. groups.go has a queue for each of several groups of
// engines.
package admission
