//go:build unix

package engine

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// fileStatus is a file's status that changes when the file is written or
// replaced. No program can set back the time of the last status change. The device
// is left out: its number changes with each mount.
func fileStatus(path string) (string, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprint(s.Size, s.Ino, s.Mtim.Nano(), s.Ctim.Nano()), nil
}
