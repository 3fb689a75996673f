//go:build cuda

package nvtx

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The library is attached once for a process, so each case is a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("FOREBAY_NVTX_TEST") == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	if err := Open(); err != nil {
		os.Stdout.WriteString(err.Error())
	}
	Push("a step")
	Push("its part")
	Pop()
	Pop()
	if On() {
		os.Stdout.WriteString("on")
	}
	os.Exit(0)
}

// TestRanges: a library that is injected is given the ranges in their order; one that is not there, or is none, is an
// error that says so; without one there are no ranges.
func TestRanges(t *testing.T) {
	emulated := os.Getenv("FOREBAY_CUDA_DRIVER")
	if emulated == "" {
		t.Fatal("FOREBAY_CUDA_DRIVER names the emulated driver, which kernels/cuda/build makes")
	}
	for _, c := range []struct{ path, said, ranges string }{
		{emulated, "on", "( a step\n( its part\n)\n)\n"},
		{"", "", ""},
		{filepath.Join(t.TempDir(), "none.so"), "cannot open shared object file", ""},
		{"libc.so.6", "it has no InitializeInjectionNvtx2", ""},
	} {
		file := filepath.Join(t.TempDir(), "ranges")
		test := exec.Command(os.Args[0])
		test.Env = append(os.Environ(), "FOREBAY_NVTX_TEST=1", "FOREBAY_EMU_NVTX="+file, pathVariable+"="+c.path)
		said, err := test.Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(said), c.said) || c.said == "" && len(said) > 0 {
			t.Errorf("%q: it says %q, want %q", c.path, said, c.said)
		}
		if ranges, _ := os.ReadFile(file); string(ranges) != c.ranges {
			t.Errorf("%q: the ranges are %q, want %q", c.path, ranges, c.ranges)
		}
	}
}
