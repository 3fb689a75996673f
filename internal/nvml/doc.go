// Package nvml reads what an NVIDIA GPU says of itself: power, memory, clocks, temperature, and
// why it is slowed down. The library of the driver, libnvidia-ml, is found at run time.
//
// Goal: one Reading of one GPU at a time. Non-goals: when it is read (engine), and settings,
// which are never changed. A value that a GPU does not give is 0.
//
// Ownership: a Device belongs to one goroutine at a time.
package nvml

// Library is the library's name, where no path is given.
const Library = "libnvidia-ml.so.1"

// Reading is a GPU at an instant.
type Reading struct {
	Milliwatts            uint64
	MemoryUsed, MemoryAll uint64 // bytes, of all processes
	ClockMHz, MemClockMHz uint64 // of the processors, and of the memory
	Celsius               uint64
	Throttled             uint64 // a bit for each reason, as NVML numbers them
}
