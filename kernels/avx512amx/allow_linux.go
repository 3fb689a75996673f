//go:build amd64 && !purego

package avx512amx

import (
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// Allow asks the operating system to save the tiles' registers for this process, which is
// for as long as it runs, and says whether the functions here may be called.
func Allow() bool {
	const (
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18     // its number among the parts of a processor's state
	)
	if x := &cpu.X86; !x.HasAMXTile || !x.HasAMXInt8 {
		return false
	}
	_, _, err := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
}
