// Package cost prices engine work: the time of a step by what it computes.
//
// Goal: gateway, engine and simulator price work by one linear model (Cost) of
// a step's Load. Fit learns the model from steps as they end; Ratio follows how
// far its predictions are off. Time is an argument; nothing here reads a clock
// or allocates in steady state.
//
// Non-goals: what a step computes (engine/step), and who may start (admission).
//
// Nothing here is safe for concurrent use; each value belongs to one goroutine.
package cost
