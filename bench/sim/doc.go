// Package sim plays traces of requests through admission and a model of an
// engine, on a clock of its own.
//
// Goal: what the Scheduler of package admission does to goodput, waits and
// fairness under any load can be measured in seconds, beside what others would
// do, and the same seed gives the same numbers. The Scheduler is the product's
// own code; the steps of the engine are composed and priced as in the engine.
//
// Non-goals: kernels, networks and bytes. Nothing here is about a gateway's
// own overhead, and an engine file is only as good as the run it comes from.
//
// Layout: read.go and format.go read traces, generate.go and adversaries.go
// make them; machine.go is the engine; forebay.go is the Scheduler, baseline.go
// what it is compared with; run.go plays; tally.go and measure.go count;
// compare.go sets loads and takes means over seeds; table.go, svg.go and
// encode.go print.
package sim
