//go:build (amd64 || arm64) && !purego

package kernels

// pause tells the processor that this thread spins, so that the other thread of its
// core gets more of it.
func pause()
