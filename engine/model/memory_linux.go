package model

import "golang.org/x/sys/unix"

// keepSmallPages is advice, which a kernel without huge pages refuses.
func keepSmallPages(b []byte) { _ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) }
