//go:build amd64 && !purego

package avx512amx

import (
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// Allow asks the operating system to save the tile registers for this process, as long as it
// runs, and reports whether the functions here may be called.
func Allow() bool {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18     // the component of the processor's state, XFEATURE_XTILEDATA
	)
	if x := &cpu.X86; !x.HasAMXTile || !x.HasAMXInt8 {
		return false
	}
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
}
