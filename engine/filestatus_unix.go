//go:build unix

package engine

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// fileStatus is what a file system changes when a file is written or replaced. The
// time of the last change of status is what no program can set back. The device is
// left out: it has another number after each mount.
func fileStatus(path string) (string, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprint(s.Size, s.Ino, s.Mtim.Nano(), s.Ctim.Nano()), nil
}
