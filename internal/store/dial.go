package store

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// dialer bounds the connections to each node that are open or being opened: those of
// the pool, and those that the pool has given up, does not count, and has not closed
// yet.
type dialer struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	nodeMax int
	away    func() // told of each server that cannot be reached; set before the first Dial

	mu    sync.Mutex
	nodes map[string]*node // guarded by mu: those with connections, or that are asked for one
}

// node is one Redis server.
type node struct {
	slots chan struct{}
	users int // guarded by the dialer's mu
}

// enter returns the node at address; leave must follow.
func (d *dialer) enter(address string) *node {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[address]
	if n == nil {
		n = &node{slots: make(chan struct{}, d.nodeMax)}
		d.nodes[address] = n
	}
	n.users++
	return n
}

func (d *dialer) leave(address string, n *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(d.nodes, address)
	}
}

func (d *dialer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n := d.enter(address)
	select {
	case n.slots <- struct{}{}:
	case <-ctx.Done():
		d.leave(address, n)
		return nil, ctx.Err()
	}
	free := func() {
		<-n.slots
		d.leave(address, n)
	}
	c, err := d.dial(ctx, network, address)
	if err != nil {
		free()
		if d.away != nil {
			d.away()
		}
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
