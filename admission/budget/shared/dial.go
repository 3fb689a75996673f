package shared

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// dialer bounds the connections that are open or being opened: those of the pool,
// and those that the pool has given up, does not count, and has not closed yet.
type dialer struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	slots chan struct{}
}

func (d *dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := func() { <-d.slots }
	c, err := d.dial(ctx, network, address)
	if err != nil {
		free()
		return nil, err
	}
	counted := &countedConn{Conn: c, free: sync.OnceFunc(free)}
	if raw, ok := c.(syscall.Conn); ok { // by which the pool sees that one was closed
		return struct {
			*countedConn
			syscall.Conn
		}{counted, raw}, nil
	}
	return counted, nil
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	free func()
}

func (c *countedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
