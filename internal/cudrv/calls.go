//go:build cuda

package cudrv

// #cgo CFLAGS: -I${SRCDIR}/include/v1
// #include <cuda.h>
//
// static CUresult forebay_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned threads, unsigned shared, CUstream s, void *parameters, size_t bytes) {
// 	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
// 	return cuLaunchKernel(f, gx, gy, gz, threads, 1, 1, shared, s, NULL, extra);
// }
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Error is a result of the driver that is not success.
type Error struct {
	Call string
	Code int
}

func (e *Error) Error() string {
	var text *C.char
	if C.cuGetErrorString(C.CUresult(e.Code), &text) != C.CUDA_SUCCESS {
		return fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code)
	}
	return fmt.Sprintf("%s: %s (CUDA error %d)", e.Call, C.GoString(text), e.Code)
}

func check(call string, result C.CUresult) error {
	if result == C.CUDA_SUCCESS {
		return nil
	}
	return &Error{Call: call, Code: int(result)}
}

// The handles of gorgonia.org/cu are structs with one pointer, and cgo's types differ from
// package to package. TestHandlesArePointers holds their size.
func function(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }
func stream(s cu.Stream) C.CUstream       { return *(*C.CUstream)(unsafe.Pointer(&s)) }

// Grid is the number of a launch's blocks in each direction.
type Grid [3]int

// Launch puts a kernel into a stream. parameters has its parameters one after another, each
// at a multiple of its size; the driver copies them before Launch returns.
func Launch(f cu.Function, grid Grid, threads, sharedBytes int, s cu.Stream, parameters []byte) error {
	return check("cuLaunchKernel", C.forebay_launch(function(f), C.uint(grid[0]), C.uint(grid[1]), C.uint(grid[2]),
		C.uint(threads), C.uint(sharedBytes), stream(s), unsafe.Pointer(unsafe.SliceData(parameters)), C.size_t(len(parameters))))
}

// AllowShared lets a kernel's launches have up to so many bytes of shared memory; without it
// 48 KiB are the most.
func AllowShared(f cu.Function, bytes int) error {
	return check("cuFuncSetAttribute", C.cuFuncSetAttribute(function(f), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

// Pin allocates host memory that stays where it is, so that the device copies it by itself.
// It is not Go's memory: Unpin frees it, and slices of it must not outlive that.
func Pin(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if err := check("cuMemHostAlloc", C.cuMemHostAlloc(&p, C.size_t(bytes), 0)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// Unpin frees what Pin has allocated.
func Unpin(memory []byte) error {
	return check("cuMemFreeHost", C.cuMemFreeHost(unsafe.Pointer(unsafe.SliceData(memory))))
}

// Graph is launches that one call puts into a stream.
type Graph struct {
	exec  C.CUgraphExec
	Nodes int
}

// Capture makes a graph of what give puts into s; nothing of it runs.
func Capture(s cu.Stream, give func() error) (*Graph, error) {
	if err := check("cuStreamBeginCapture", C.cuStreamBeginCapture(stream(s), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); err != nil {
		return nil, err
	}
	failed := give()
	var graph C.CUgraph
	err := check("cuStreamEndCapture", C.cuStreamEndCapture(stream(s), &graph))
	if graph != nil {
		defer C.cuGraphDestroy(graph)
	}
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	g := &Graph{}
	var nodes C.size_t
	if err := check("cuGraphGetNodes", C.cuGraphGetNodes(graph, nil, &nodes)); err != nil {
		return nil, err
	}
	g.Nodes = int(nodes)
	if err := check("cuGraphInstantiate", C.cuGraphInstantiate(&g.exec, graph, 0)); err != nil {
		return nil, err
	}
	return g, check("cuGraphUpload", C.cuGraphUpload(g.exec, stream(s)))
}

// Launch puts the graph into a stream.
func (g *Graph) Launch(s cu.Stream) error {
	return check("cuGraphLaunch", C.cuGraphLaunch(g.exec, stream(s)))
}

// Close frees the graph.
func (g *Graph) Close() error { return check("cuGraphExecDestroy", C.cuGraphExecDestroy(g.exec)) }
