package httpd

import (
	"encoding/binary"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// epollWatcher is one goroutine that waits for peers to go. The kernel wakes
// it for RDHUP (the peer closed, or shut its write side), HUP and ERR alone,
// never for data, so a quiet and a busy connection cost the same.
//
// An event carries the connection's token and not its descriptor, whose
// number may serve another connection by the time the event is read. Tokens
// are never used twice.
type epollWatcher struct {
	epoll int
	wake  int // eventfd that ends the goroutine
	done  chan struct{}

	mu    sync.Mutex
	next  uint64
	conns map[uint64]*conn
}

// wakeToken is the eventfd's; connections count from 1.
const wakeToken = 0

func newWatcher() (watcher, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(epoll)
		return nil, err
	}
	w := &epollWatcher{epoll: epoll, wake: wake, done: make(chan struct{}), conns: map[uint64]*conn{}}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, wake, event(unix.EPOLLIN, wakeToken)); err != nil {
		unix.Close(epoll)
		unix.Close(wake)
		return nil, err
	}
	go w.run()
	return w, nil
}

// event packs a token into the 64 bits that the kernel hands back.
func event(mask uint32, token uint64) *unix.EpollEvent {
	e := &unix.EpollEvent{Events: mask}
	e.Fd, e.Pad = int32(uint32(token)), int32(uint32(token>>32))
	return e
}

func token(e *unix.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }

func (w *epollWatcher) add(c *conn) error {
	raw, err := c.socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.next++
	c.token = w.next
	w.conns[c.token] = c
	w.mu.Unlock()
	ctlErr := error(nil)
	err = raw.Control(func(fd uintptr) {
		ctlErr = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, int(fd), event(unix.EPOLLRDHUP|unix.EPOLLONESHOT, c.token))
	})
	if err == nil {
		err = ctlErr
	}
	if err != nil {
		w.forget(c)
	}
	return err
}

// forget leaves the descriptor to the close that follows, which takes it out
// of the epoll set.
func (w *epollWatcher) forget(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, c.token)
}

func (w *epollWatcher) run() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			panic("httpd: epoll_wait: " + err.Error())
		}
		for i := range max(0, n) {
			t := token(&events[i])
			if t == wakeToken {
				return
			}
			w.mu.Lock()
			c := w.conns[t]
			w.mu.Unlock()
			if c != nil {
				c.hangUp()
			}
		}
	}
}

// Close stops the goroutine and waits for it.
func (w *epollWatcher) Close() error {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	if _, err := unix.Write(w.wake, one); err != nil {
		return err
	}
	<-w.done
	unix.Close(w.wake)
	return unix.Close(w.epoll)
}
