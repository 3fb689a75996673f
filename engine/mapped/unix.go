//go:build unix

package mapped

import (
	"fmt"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps a regular file read-only. O_NONBLOCK keeps a FIFO from blocking
// the open. The type is checked on the open descriptor, so there is no race.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, describeOpen(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := checkRegular(path, info); err != nil {
		return nil, nil, err
	}
	data, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "mmap", Path: path, Err: err}
	}
	return data, func() error { return unix.Munmap(data) }, nil
}

// dropResident frees the complete pages in b, a part of a mapping. The system may
// ignore it; then more memory stays in use.
func dropResident(b []byte) {
	pageBytes := os.Getpagesize()
	head := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (pageBytes - 1)
	if whole := (len(b) - head) / pageBytes * pageBytes; whole > 0 {
		_ = unix.Madvise(b[head:head+whole], unix.MADV_DONTNEED)
	}
}

// describeOpen distinguishes a dangling link from a missing file.
func describeOpen(path string, err error) error {
	if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 && os.IsNotExist(err) {
		return fmt.Errorf("%s: is a link to a file that does not exist: %w", path, err)
	}
	return err
}
