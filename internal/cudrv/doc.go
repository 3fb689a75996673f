// Package cudrv reaches the CUDA driver, with the build tag cuda.
//
// Goal: a program that is built with the tag starts on a machine without a driver, and
// says there what is missing. Its C part is a library of the driver's names (shim)
// which gorgonia.org/cu links; Open finds the real driver, or the emulated one, and
// leads the names to it. The package also has the calls that gorgonia.org/cu lacks:
// pinned memory, stream capture, graphs, launches with parameters in one buffer.
//
// Non-goals: devices, modules, streams, events and memory, which gorgonia.org/cu has;
// what is computed (kernels/cuda).
//
// The folder include has our own cuda.h at the level of 12.x: builds need no toolkit and
// take none. internal/cudrv/build compiles the library and prints the environment for go build.
package cudrv
