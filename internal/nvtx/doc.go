// Package nvtx names what the engine does in the timelines of NVIDIA's profilers, with the build
// tag cuda.
//
// Goal: ranges of NVTX 3 where a profiler asks for them, which it does by the path of its library
// in NVTX_INJECTION64_PATH; without one a range costs a comparison. The
// protocol is that of NVIDIA's headers (nvtxDetail/nvtxTypes.h), which programs compile into
// themselves: the program gives the library tables of places for functions, and the library puts
// its functions there. Non-goals: domains, categories, marks, resources.
package nvtx
