// Package sim plays traces of requests through admission and a model of an
// engine, on a clock of its own.
//
// Goal: the effect of package admission's Scheduler on goodput, waits and fairness
// can be measured for any load in seconds, beside other policies, and the same seed
// gives the same numbers. The Scheduler is the product's own code; steps of the
// engine are composed and priced as in the engine.
//
// Non-goals: kernels, networks and bytes. What a gateway takes is only what an
// engine file says of arrivals and ways, and the file is only as good as the run that
// it was learned from (learn.go). Whether a simulation is near to the run that its
// trace was recorded in, recorded.go tells.
//
// Layout: read.go, format.go and recorded.go read traces, generate.go and
// adversaries.go make them; machine.go is the engine, learn.go learns its costs; forebay.go is the Scheduler, baseline.go the
// policies that it is compared with; run.go plays; tally.go and measure.go count;
// compare.go sets loads and takes means over seeds; table.go, svg.go and encode.go
// print.
package sim
