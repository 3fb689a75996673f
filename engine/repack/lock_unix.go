//go:build unix

package repack

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockPart opens the unfinished image at path, empties and locks it. It returns
// ErrBusy if another process holds the lock. It follows no symbolic link.
func lockPart(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, errors.Join(err, f.Close())
	}
	// Between open and lock, its writer may have renamed or removed the file.
	own, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(path); err == nil && !os.SameFile(own, named) || errors.Is(err, os.ErrNotExist) {
			err = ErrBusy
		}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
