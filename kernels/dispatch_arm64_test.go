//go:build !purego

package kernels

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestExpectedSetsARM64: every arm64 processor that Go runs on has Advanced SIMD, so
// the set is expected whatever the system says. Its list of features is compared where it
// is of this processor: under a user-mode emulator it is the host's.
func TestExpectedSetsARM64(t *testing.T) {
	t.Setenv(DisableEnv, "")
	if got := names(Sets()); !slices.Equal(got, []string{"neon", "ref"}) {
		t.Errorf("sets %v", got)
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	_, line, ok := strings.Cut(string(info), "\nFeatures")
	if !ok {
		t.Logf("the system names no features of an arm64 processor (%v): not compared", err)
		return
	}
	line, _, _ = strings.Cut(line, "\n")
	if !slices.Contains(strings.Fields(line), "asimd") {
		t.Errorf("the system says that this processor lacks asimd: %s", line)
	}
}
