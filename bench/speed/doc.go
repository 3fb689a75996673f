// Package speed measures the engine's arithmetic: a model's prefill and decode
// without the loop, sockets and sampling, and each operation of a kernel set beside
// the limits of the machine.
//
// Goal: numbers that can be compared with those of other engines. They are measured
// the same way and printed in the same form: one JSON object a line, whose key
// "peer", "machine", "prefill" or "depth" tells its kind (form.go). The machine's
// rates of the same minute are printed with them.
//
// Non-goals: flags and tables (cli), other engines (bench/compare), and the times
// that requests see under load (the gateway's metrics).
//
// Ownership: a Bench belongs to one goroutine; its team does the work.
package speed
