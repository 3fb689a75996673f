// Package step decides what one step of an engine computes.
//
// Goal: the engine and the simulator compose steps by the same pure code
// (Composer), within a time budget priced by internal/cost. Time is an
// argument; nothing here reads a clock or allocates in steady state.
//
// Non-goals: what a token costs (internal/cost), who may start (admission), and
// pages (cache).
//
// A Composer is not safe for concurrent use: the engine's loop owns it.
package step
