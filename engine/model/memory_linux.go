package model

import "golang.org/x/sys/unix"

// keepSmallPages is advice; a kernel without huge pages refuses it.
func keepSmallPages(b []byte) { _ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) }
