// Package cuda is the kernels for NVIDIA GPUs, with the build tag cuda: sources in CUDA, the
// PTX that they compile to, and a Device that holds memory and launches them.
//
// Goal: the arithmetic of package kernels on a GPU, each kernel within the tolerance of ref,
// and each row's bits the same in every batch: a launch adds the numbers of a row in an order
// that depends on nothing else. Non-goals: which model, which order of kernels (engine/gpu).
//
// The kernels are written in the words of device.h alone. NVRTC compiles them to
// kernels.ptx.gz, which is part of the binary (ptx.py; the driver compiles it for the GPU at
// hand); g++ compiles the same files for the emulated driver (emu, build), on which the
// tests run without a GPU. The emulator refuses a PTX that does not have the sources' kernels.
//
// A Device belongs to one thread at a time: who calls it has locked its goroutine to a thread
// and called Bind. An error of a launch, or of what waits for one, stays: the process has to end.
package cuda
