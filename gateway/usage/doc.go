// Package usage writes what each request used to files of JSON lines, from which
// others make bills.
//
// Goal: each request that ran has exactly one line, over restarts too. Lines have
// numbers that count up by one; a line that the disk did not take leaves its number
// out, so that it is seen. No request waits for the disk. What a process that is
// killed had not handed to the kernel, a few milliseconds' worth, is lost.
//
// Non-goals: sums, bills, and sending lines anywhere. Limits are enforced in
// admission/budget, which does not read these files.
//
// Ownership: one process writes to a file, which it locks, and one goroutine of the
// Writer does it. A full file is renamed to its name with the number of its last
// line, and never changed again.
package usage
