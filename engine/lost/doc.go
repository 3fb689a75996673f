// Package lost says how much time the engine lost because its process did not run
// although it had work, and why: its process was frozen, other processes had the
// processors, a hypervisor had them, its CPU limit was used up, or it waited for a
// disk.
//
// Goal: the Meter compares each step with what it would take undisturbed and with
// the processor time that the process had. Only if a step took longer does it look
// at what the kernel counts (Reading), and then time is lost only as far as these
// counts show a cause. It is pure: instants and readings are arguments. The Watcher
// around it reads the kernel's files, and looks at the times without a step too.
//
// Non-goals: to decide anything by it. Package wire carries the result to the
// gateway, which explains requests with it.
//
// Ownership: the Watcher has one goroutine until Close. Its methods may be called
// from any goroutine, and on a nil Watcher, which does nothing.
package lost
