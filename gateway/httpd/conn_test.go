package httpd

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quietConn counts the writes that begin, and has no peer.
type quietConn struct {
	net.Conn
	writes int
}

func (c *quietConn) SetWriteDeadline(time.Time) error { return nil }
func (c *quietConn) Write(p []byte) (int, error)      { c.writes++; return len(p), nil }

// TestNoWriteBeginsOnceThePeerIsGone: its deadline would undo that of hangUp.
func TestNoWriteBeginsOnceThePeerIsGone(t *testing.T) {
	quiet := &quietConn{}
	c := &conn{Conn: quiet}
	left := 0
	c.watch(func() { left++ })
	if _, err := c.writeWithin([]byte("x"), time.Second); err != nil || quiet.writes != 1 {
		t.Fatal(err, quiet.writes)
	}
	c.hangUp()
	c.hangUp()
	if _, err := c.writeWithin([]byte("x"), time.Second); err == nil || quiet.writes != 1 || left != 1 {
		t.Errorf("%v, %d writes, left %d times", err, quiet.writes, left)
	}
}

// sentConn is a TCP connection whose peer still sends, and notes what is done.
type sentConn struct {
	quietConn
	done []string
}

func (c *sentConn) note(what string)                { c.done = append(c.done, what) }
func (c *sentConn) CloseWrite() error               { c.note("close write"); return nil }
func (c *sentConn) SetReadDeadline(time.Time) error { return nil }
func (c *sentConn) Read(p []byte) (int, error)      { c.note("read"); return len(p), io.EOF }
func (c *sentConn) Close() error                    { c.note("close"); return nil }

type noWatcher struct{}

func (noWatcher) add(*conn) error { return nil }
func (noWatcher) forget(*conn)    {}
func (noWatcher) Close() error    { return nil }

// TestCloseLingersForARefusal: bytes that lie unread would make the close a
// reset, which can overtake the answer.
func TestCloseLingersForARefusal(t *testing.T) {
	for linger, want := range map[bool]string{true: "close write read close", false: "close"} {
		raw := &sentConn{}
		c := &conn{Conn: raw, listener: &listener{watcher: noWatcher{}}}
		c.linger.Store(linger)
		c.Close()
		if again := c.Close(); again == nil || strings.Join(raw.done, " ") != want {
			t.Errorf("linger %v: %q, closed again: %v", linger, raw.done, again)
		}
	}
}

// shortListener has no descriptor for its first accepts.
type shortListener struct {
	net.Listener
	errs []error
}

func (l *shortListener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return nil, net.ErrClosed
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

func TestAcceptWaitsForDescriptors(t *testing.T) {
	short := &shortListener{errs: []error{&net.OpError{Op: "accept", Err: syscall.EMFILE}, syscall.ENFILE, syscall.ENOBUFS}}
	l := &listener{Listener: short}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || len(short.errs) != 0 {
		t.Errorf("%v with %d errors to come", err, len(short.errs))
	}
}
