//go:build cuda

package cudrv

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"gorgonia.org/cu"
)

// TestHandlesArePointers: handles cross from gorgonia.org/cu as structs of one pointer.
func TestHandlesArePointers(t *testing.T) {
	for name, size := range map[string]uintptr{"Function": unsafe.Sizeof(cu.Function{}), "Stream": unsafe.Sizeof(cu.Stream{})} {
		if size != unsafe.Sizeof(uintptr(0)) {
			t.Errorf("cu.%s has %d bytes", name, size)
		}
	}
}

// TestStartsWithoutDriver: that this test runs at all shows that cuInit at the program's start
// did not end it; before Open every call fails, and Open says what is missing.
func TestStartsWithoutDriver(t *testing.T) {
	if _, err := cu.NumDevices(); err != cu.NoDevice {
		t.Errorf("before Open, the number of devices gives %v", err)
	}
	err := Open("/nowhere/libcuda.so")
	if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "/nowhere/libcuda.so") {
		t.Errorf("a driver that is not there gives %v", err)
	}
	if err := Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "no function cuInit") {
		t.Errorf("a library that is no driver gives %v", err)
	}
	if _, err := cu.NumDevices(); err != cu.NoDevice {
		t.Errorf("after a failed Open, the number of devices gives %v", err)
	}
}
