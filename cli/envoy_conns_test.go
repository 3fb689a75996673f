package cli

import (
	"errors"
	"net"
	"testing"
	"time"
)

// TestFewConns: no more connections are open than there may be, one that ends makes room,
// and who waits is told when the listener ends.
func TestFewConns(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := newFewConns(inner, 2)
	defer ln.Close()
	type accepted struct {
		conn net.Conn
		err  error
	}
	got := make(chan accepted)
	go func() {
		for {
			c, err := ln.Accept()
			got <- accepted{c, err}
			if err != nil {
				return
			}
		}
	}()
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	one, two := <-got, <-got
	select {
	case a := <-got:
		t.Fatalf("a third was accepted: %v", a.err)
	case <-time.After(50 * time.Millisecond):
	}
	one.conn.Close()
	one.conn.Close() // again, which frees no second place
	three := <-got
	if three.err != nil {
		t.Fatal(three.err)
	}
	select {
	case a := <-got:
		t.Fatalf("a fourth was accepted: %v", a.err)
	case <-time.After(50 * time.Millisecond):
	}
	ln.Close()
	if a := <-got; !errors.Is(a.err, net.ErrClosed) {
		t.Errorf("who waits is told %v", a.err)
	}
	two.conn.Close()
	three.conn.Close()
}
