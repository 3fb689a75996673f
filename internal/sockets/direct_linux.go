//go:build !race

package sockets

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// conn is a socket. Deadlines and Close work as ever: Go's poller waits for it.
type conn struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is the call under way in one direction.
type transfer struct {
	number uintptr // of the system call
	p      []byte
	now    bool // the socket is not waited for
	n      int
	err    syscall.Errno
	try    func(fd uintptr) (done bool) // made once, so that a call allocates nothing
}

func direct(c net.Conn) net.Conn {
	var raw syscall.RawConn
	var err error
	switch c := c.(type) { // TLS over a socket may offer the socket too
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	}
	if raw == nil || err != nil {
		return c
	}
	d := &conn{Conn: c, raw: raw}
	d.in.number, d.out.number = syscall.SYS_READ, syscall.SYS_WRITE
	d.in.try, d.out.try = d.in.call, d.out.call
	return d
}

// call makes the system call. It tells whether that is all: else the socket is waited for.
func (t *transfer) call(fd uintptr) (done bool) {
	for {
		n, _, err := syscall.RawSyscall(t.number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.p))), uintptr(len(t.p)))
		if err == syscall.EINTR {
			continue
		}
		t.n, t.err = int(n), err
		return t.now || err != syscall.EAGAIN
	}
}

// move moves some bytes of p; through is the socket's Read or Write.
func (t *transfer) move(p []byte, through func(try func(fd uintptr) bool) error) (int, error) {
	t.p = p
	err := through(t.try)
	t.p = nil
	switch {
	case err != nil:
		return 0, err
	case t.err != 0:
		return 0, t.err
	}
	return t.n, nil
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.in.move(p, c.raw.Read)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	return n, c.fault("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (written int, err error) {
	for written < len(p) && err == nil {
		var n int
		n, err = c.out.move(p[written:], c.raw.Write)
		written += n
	}
	return written, c.fault("write", err)
}

// WriteNow writes as much of p as the socket takes without waiting. Where that is not all,
// Write tells why.
func (c *conn) WriteNow(p []byte) int {
	c.out.now = true
	written, err := c.out.move(p, c.raw.Write)
	c.out.now = false
	if err != nil {
		return 0
	}
	return written
}

// fault is err as Go's own connections tell it.
func (c *conn) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	var of *net.OpError
	var number syscall.Errno
	switch {
	case errors.As(err, &of): // "raw-read"
		err = of.Err
	case errors.As(err, &number):
		err = os.NewSyscallError(op, number)
	}
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// CloseWrite ends the direction to the peer.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn implements syscall.Conn.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

func peek(fd uintptr) error {
	var b [1]byte
	_, _, err := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return err
	}
	return nil
}
