package gpu

import "errors"

// Options say which device is taken.
type Options struct {
	ID     int    // of the device, from 0
	Driver string // library of the driver; empty takes the machine's own
	// Checked waits for every kernel, so that a fault names its kernel. Slow.
	Checked bool
	// TimingEvery is of how many steps one is timed kernel by kernel, where there is a Timer;
	// 0 times only the steps whose launches are kept.
	TimingEvery int
	// Loaded, if it is not nil, is called while weights are copied to the device, often: with the
	// bytes that are done, and about how many there are.
	Loaded func(done, total int)
}

// Info describes a device that was taken.
type Info struct {
	Name        string
	ID          int
	Capability  string // compute capability, such as 9.0
	Driver      string // CUDA version of the driver, such as 12.4
	MemoryBytes int64
}

// ErrNone says that there is no device that could be used: no driver, no GPU, or a binary
// without the GPU part.
var ErrNone = errors.New("there is no GPU to use")
