package httpd

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// backlog asks the kernel: a slow reader does not block a write as long as the
// socket's buffer takes it.
func (c *conn) backlog() (unread int, stalled time.Duration) {
	sys, ok := c.socket.(syscall.Conn)
	if !ok {
		return 0, 0
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return 0, 0
	}
	_ = raw.Control(func(fd uintptr) { // a connection that is closed has none
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			stalled = time.Duration(info.Rwnd_limited) * time.Microsecond
		}
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			unread = n
		}
	})
	return unread, stalled
}

// established asks the kernel whether the peer has not closed yet, which it knows
// before anything here does.
func (c *conn) established() bool {
	sys, ok := c.socket.(syscall.Conn)
	if !ok {
		return !c.closed.Load()
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	open := false
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		open = err == nil && info.State == unix.BPF_TCP_ESTABLISHED
	})
	return open
}
