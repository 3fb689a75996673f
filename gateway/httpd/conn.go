package httpd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// watcher tells connections that their peer has gone. See watch_linux.go.
type watcher interface {
	// add starts watching; forget ends it, before the connection is closed.
	add(c *conn) error
	forget(c *conn)
	Close() error
}

// listener wraps what it accepts in conn, and bounds their number.
type listener struct {
	net.Listener
	tls     *tls.Config // nil without
	watcher watcher
	max     int
	failed  func(peer net.Addr, why Handshake, err error) // Config.HandshakeFailed
	full    func() ([]Field, []byte)                      // what a connection over max is told

	// refusals holds a token for each refused connection that lingers.
	refusals    chan struct{}
	endRefusals sync.Once

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// refusalsMax bounds the connections over the limit that linger until their
// answer is read. Those beyond it are answered too, and may lose the answer to a reset.
const refusalsMax = 64

// conn is one client connection: fasthttp reads and writes it, an Output writes
// to it, and a handler learns from it that the client has left.
type conn struct {
	net.Conn          // over TLS, if the listener speaks it
	socket   net.Conn // itself
	listener *listener
	token    uint64 // the watcher's name for it
	// mute drops what fasthttp writes: it is about to send a second response
	// after that of an Output, or one to a client that has gone.
	mute atomic.Bool
	// linger makes Close wait briefly for the peer to read the last response,
	// which a reset would destroy when request bytes are still unread.
	linger atomic.Bool
	closed atomic.Bool

	mu   sync.Mutex
	gone bool
	left func() // called once, when the peer goes; nil between requests
}

// acceptPause is how long to wait for a descriptor when there is none.
const acceptPause = 20 * time.Millisecond

// Accept implements net.Listener. It waits while there is no descriptor or
// memory for another connection, since an error would end the server.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if isShortage(err) {
			time.Sleep(acceptPause)
			continue
		}
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, socket: raw, listener: l}
		if l.tls != nil {
			c.Conn = tls.Server(raw, l.tls) // shakes hands with the first read
		}
		l.mu.Lock()
		full := len(l.conns) >= l.max
		if !full {
			l.conns[c] = struct{}{}
		}
		l.mu.Unlock()
		if full {
			l.refuse(c)
			continue
		}
		if _, ok := raw.(syscall.Conn); ok {
			if err := l.watcher.add(c); err != nil {
				c.Close()
				continue
			}
		}
		return c, nil
	}
}

func isShortage(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, func(shortage error) bool { return errors.Is(err, shortage) })
}

// refuse answers a connection over the limit. The response fits into an empty
// socket buffer, so the write does not wait; closeAll waits for those that linger.
func (l *listener) refuse(c *conn) {
	if l.tls != nil { // a handshake would hold up those who wait to be accepted
		_ = c.socket.Close()
		c.Close()
		return
	}
	fields, body := l.full()
	b := append(make([]byte, 0, 1024), "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"...)
	b = appendFields(b, fields)
	b = append(fmt.Appendf(b, "Content-Length: %d\r\n\r\n", len(body)), body...)
	_ = c.Conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = c.Conn.Write(b)
	select {
	case l.refusals <- struct{}{}:
		c.linger.Store(true)
		go func() {
			c.Close()
			<-l.refusals
		}()
	default:
		c.Close()
	}
}

// closeAll closes every connection.
func (l *listener) closeAll() {
	l.mu.Lock()
	all := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		c.linger.Store(false)
		if l.tls != nil {
			_ = c.socket.Close() // or each farewell of TLS might wait for its client
		}
		c.Close()
	}
	l.endRefusals.Do(func() {
		for range cap(l.refusals) {
			l.refusals <- struct{}{} // all of them, and for good
		}
	})
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if c.mute.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

const (
	lingerLimit    = 500 * time.Millisecond
	lingerBytesMax = 1 << 20
)

// Close implements net.Conn. Watching ends first, so that the descriptor's
// number can serve another connection.
func (c *conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	c.listener.watcher.forget(c)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Load() && half.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerLimit))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytesMax)
	}
	err := c.Conn.Close()
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return err
}

// alone tells that no other connection from the peer's address is open.
func (c *conn) alone() bool {
	mine, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return false
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	for other := range c.listener.conns {
		if theirs, ok := other.RemoteAddr().(*net.TCPAddr); other != c && ok && theirs.IP.Equal(mine.IP) && other.established() {
			return false
		}
	}
	return true
}

// watch calls left when the peer goes, at once if it has gone already.
func (c *conn) watch(left func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		left()
		return
	}
	c.left = left
}

// unwatch ends watch; after it returns left is not called.
func (c *conn) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = nil
}

// writeWithin writes p, all of it, within limit. It does not begin once the
// peer has gone, so that no deadline outlives the one that hangUp sets.
func (c *conn) writeWithin(p []byte, limit time.Duration) (int, error) {
	c.mu.Lock()
	err := net.ErrClosed
	if !c.gone {
		err = c.Conn.SetWriteDeadline(time.Now().Add(limit))
	}
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// hangUp notes that the peer has gone. A write that waits for it ends.
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	if c.left != nil {
		c.left()
		c.left = nil
		_ = c.Conn.SetWriteDeadline(time.Unix(1, 0))
	}
}
