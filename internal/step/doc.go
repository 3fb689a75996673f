// Package step decides what one step of an engine computes, and what that
// costs.
//
// Goal: the engine and the simulator compose steps by the same pure code, and
// gateway and engine price work by the same model. Time is an argument.
//
// Non-goals: who may start (admission), and pages (engine/kv).
package step
