// Package speed measures the engine's arithmetic: a model's prefill and decode
// without loop, sockets and sampling, and each operation of a kernel set beside
// what the machine can do at most.
//
// Goal: numbers that can be held beside those of other engines, taken in the same
// way and printed in the same form: one JSON object a line, told apart by its key
// "peer", "machine", "prefill" or "depth" (form.go). Each stands with the
// machine's rates of the same minute.
//
// Not here: flags and tables (main), other engines (bench/compare), what a load of
// requests sees (the gateway's metrics).
//
// A Bench belongs to one goroutine; its team does the work.
package speed
