// Package step decides what one step of an engine computes, and what that
// costs.
//
// Goal: the engine and the simulator compose steps by the same pure code
// (Composer), and gateway and engine price work by the same model (Cost),
// which learns from the steps as they end (Fit) and knows how far it is off
// (Ratio). Time is an argument; nothing here reads a clock or allocates in
// steady state.
//
// Non-goals: who may start (admission), and pages (engine/kv).
//
// Nothing here is safe for two goroutines at once: the engine's loop owns it.
package step
