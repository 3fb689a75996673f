// Package sockets makes the reads and writes of a connection cheap where they are short
// and far apart, as those of a stream of tokens are.
//
// Go's own calls tell the scheduler before each that it may block. Where the process was
// idle, that starts its monitor thread, which then sleeps and wakes every 20 µs until the
// process is idle again: two thirds of the wakings of a gateway with one stream. A socket
// of Go does not block, and nobody need be told.
//
// What it costs: the processor's other goroutines, and the collector's short stops, wait
// for a call under way, which is some tens of µs for the largest writes.
package sockets

import (
	"net"
	"syscall"
)

// Direct returns c with calls that do not tell the scheduler, where c is a TCP or
// Unix socket and the system is Linux; else c itself. One read may be under way at a
// time, and one write.
func Direct(c net.Conn) net.Conn { return direct(c) }

// Quiet tells that the peer has neither closed a connection nor sent anything that was
// not read.
func Quiet(c net.Conn) bool {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = over.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var got error
	err = raw.Read(func(fd uintptr) bool {
		got = peek(fd)
		return true
	})
	return err == nil && (got == syscall.EAGAIN || got == syscall.EWOULDBLOCK)
}
