package cli

import (
	"net"
	"sync"
)

// fewConns is a listener with so many connections at a time; further ones wait until one
// ends.
type fewConns struct {
	net.Listener
	places chan struct{} // has room for those that may be open
	closed chan struct{}
	once   sync.Once
}

func newFewConns(ln net.Listener, most int) *fewConns {
	return &fewConns{Listener: ln, places: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *fewConns) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close implements net.Listener.
func (l *fewConns) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// placed is a connection that has a place.
type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
