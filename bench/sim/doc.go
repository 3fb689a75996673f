// Package sim plays traces of requests through admission and a model of an
// engine, on a clock of its own.
//
// Goal: the effect of package admission's Scheduler on goodput, waits and fairness
// can be measured for any load in seconds, beside other policies, and the same seed
// gives the same numbers. The Scheduler is the product's own code; steps of the
// engine are composed and priced as in the engine.
//
// Non-goals: kernels, networks and bytes. A gateway's own overhead is not simulated,
// and an engine file is only as good as the run that it was measured in.
//
// Layout: read.go and format.go read traces, generate.go and adversaries.go
// make them; machine.go is the engine; forebay.go is the Scheduler, baseline.go the
// policies that it is compared with; run.go plays; tally.go and measure.go count;
// compare.go sets loads and takes means over seeds; table.go, svg.go and encode.go
// print.
package sim
