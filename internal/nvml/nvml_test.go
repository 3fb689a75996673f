//go:build cuda

package nvml

import (
	"os"
	"strings"
	"testing"
)

// uuid is that of the emulated driver's GPU.
const uuid = "GPU-00000000-0000-0000-0000-000000000000"

// TestRead: the emulated library's numbers arrive in their places.
func TestRead(t *testing.T) {
	d, err := Open(os.Getenv("FOREBAY_CUDA_DRIVER"), uuid)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	got := d.Read()
	got.MemoryUsed = 0 // of the emulated driver's allocations
	if want := (Reading{Milliwatts: 123000, MemoryAll: 8 << 30, ClockMHz: 1410, MemClockMHz: 2619, Celsius: 61, Throttled: 0x24}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestNotThere(t *testing.T) {
	if _, err := Open("libnothing.so", uuid); err == nil || !strings.Contains(err.Error(), "libnothing.so is not there") {
		t.Errorf("%v", err)
	}
	if _, err := Open("libc.so.6", uuid); err == nil || !strings.Contains(err.Error(), "is not NVML") {
		t.Errorf("%v", err)
	}
	if _, err := Open(os.Getenv("FOREBAY_CUDA_DRIVER"), "GPU-1"); err == nil || !strings.Contains(err.Error(), "does not know the GPU GPU-1: error 6") {
		t.Errorf("%v", err)
	}
}
