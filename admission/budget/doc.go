// Package budget holds tenants to their limits: requests and tokens a minute,
// requests at once, tokens a day.
//
// Goal: what is reserved at admission is settled exactly once, whatever
// becomes of the request, and limits hold over all gateways that share a store.
//
// Non-goals: who goes first (admission), and HTTP (gateway).
package budget
