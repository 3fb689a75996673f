//go:build cuda

package cudrv

// #cgo CFLAGS: -I${SRCDIR}/include/v1
// #include <cuda.h>
// #include "shim/shim.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Library is the driver's name, where no path is given.
const Library = "libcuda.so.1"

// ErrNone says that there is no driver, or that it has no device.
var ErrNone = errors.New("no CUDA device")

var (
	opening sync.Mutex
	opened  string
)

// Open loads the driver at path, or the machine's own where path is empty, and starts it.
// All driver calls fail before that. A process has one driver: opening another one later
// is an error.
func Open(path string) error {
	if path == "" {
		path = Library
	}
	opening.Lock()
	defer opening.Unlock()
	if opened != "" {
		if opened != path {
			return fmt.Errorf("the CUDA driver %s is already open; %s cannot be opened beside it", opened, path)
		}
		return nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var problem [512]C.char
	switch code := C.forebay_cuda_open(name, &problem[0], C.size_t(len(problem))); code {
	case C.CUDA_SUCCESS:
		opened = path
		return nil
	case C.FOREBAY_CUDA_NO_LIBRARY:
		return fmt.Errorf("%w: the driver could not be loaded: %s", ErrNone, C.GoString(&problem[0]))
	case C.CUDA_ERROR_NO_DEVICE:
		return fmt.Errorf("%w: the driver %s finds none; in a container, is the GPU given to it?", ErrNone, path)
	default:
		return fmt.Errorf("the CUDA driver %s does not start: error %d", path, int(code))
	}
}
