package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// connections are those to one server, kept for further requests. They speak HTTP/1.1.
// A request is written, and its answer read, by the goroutine that asks: net/http's
// Transport hands both to goroutines of the connection, and each hand-over may wait
// for a processor.
type connections struct {
	dial func(context.Context) (net.Conn, error)
	most int // that wait

	mu     sync.Mutex
	idle   []*connection // the one that was used last is the last
	closed bool
}

const (
	// idleLimit is how long a connection waits for its next request. Servers close
	// theirs after 5 s, and a request on a connection that is just being closed fails.
	idleLimit = 4 * time.Second
	// headBytesMax bounds the head of an answer.
	headBytesMax = 64 << 10
	// writeFirst is the size of a request from which the answer is waited for while it is
	// written: a server may refuse what is too long before it has read it.
	writeFirst = 64 << 10
	// lateRefusal is how long an answer is waited for where a request could not be written.
	lateRefusal = 500 * time.Millisecond
	// informalMost bounds answers of status 1xx before the true one.
	informalMost = 8
	// restBytesMax and restLimit bound what is read after an answer that is whole.
	restBytesMax = 4 << 10
	restLimit    = time.Second
)

var (
	errHeadLong = errors.New("the head of the answer is longer than 64 KiB")
	errInformal = errors.New("the answer does not begin")
)

// do sends r and returns its answer once the head has come. reused tells that the
// connection had served another. The answer's body must be closed; the end of r's
// context closes the connection.
func (p *connections) do(r *http.Request) (answer *http.Response, reused bool, err error) {
	for {
		c := p.take()
		if reused = c != nil; !reused {
			if c, err = p.open(r.Context()); err != nil {
				return nil, false, err
			}
		}
		c.stop = context.AfterFunc(r.Context(), func() { c.Close() })
		if answer, err = c.exchange(r); err == nil {
			answer.Body = &answerBody{from: answer.Body, of: c, ctx: r.Context(), keep: !answer.Close && answer.StatusCode >= http.StatusOK}
			return answer, reused, nil
		}
		c.release(false)
		if why := r.Context().Err(); why != nil {
			return nil, reused, why
		}
		if !reused || r.Method != http.MethodGet { // perhaps it was closed just when we used it
			return nil, reused, err
		}
	}
}

func (p *connections) open(ctx context.Context) (*connection, error) {
	socket, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: socket, pool: p, to: bufio.NewWriter(socket)}
	c.from = bufio.NewReader(c)
	return c, nil
}

// take returns a connection that waits, or nil.
func (p *connections) take() *connection {
	for {
		p.mu.Lock()
		p.sweep()
		n := len(p.idle) - 1
		if n < 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[n]
		p.idle[n], p.idle = nil, p.idle[:n]
		p.mu.Unlock()
		if c.quiet() {
			return c
		}
		c.Close()
	}
}

// put keeps c for the next request.
func (p *connections) put(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep()
	if p.closed || len(p.idle) >= p.most {
		c.Close()
		return
	}
	c.since = time.Now()
	p.idle = append(p.idle, c)
}

// sweep closes what has waited too long. The caller holds mu.
func (p *connections) sweep() {
	n := 0
	for n < len(p.idle) && time.Since(p.idle[n].since) > idleLimit {
		p.idle[n].Close()
		n++
	}
	kept := copy(p.idle, p.idle[n:])
	clear(p.idle[kept:])
	p.idle = p.idle[:kept]
}

// close ends the connections that wait; those in use end with their answers.
func (p *connections) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}

// connection has one request at a time.
type connection struct {
	net.Conn
	pool    *connections
	from    *bufio.Reader
	to      *bufio.Writer
	left    int64       // bytes that may be read yet
	stop    func() bool // undoes that the end of the request's context closes it
	writing chan error  // receives the end of a write that goes on beside reading, else nil
	since   time.Time   // it waits
}

// Read implements io.Reader, for from.
func (c *connection) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeadLong
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// exchange writes r and reads the head of its answer.
func (c *connection) exchange(r *http.Request) (*http.Response, error) {
	var unwritten error
	c.writing = nil
	if r.ContentLength < writeFirst {
		unwritten = c.write(r)
	} else {
		written := make(chan error, 1)
		c.writing = written
		go func() { written <- c.write(r) }()
	}
	if unwritten != nil { // perhaps it was refused
		c.SetReadDeadline(time.Now().Add(lateRefusal))
	}
	c.left = headBytesMax
	for range informalMost {
		answer, err := http.ReadResponse(c.from, r)
		switch {
		case err != nil && unwritten != nil:
			return nil, unwritten
		case err != nil:
			return nil, err
		case answer.StatusCode >= http.StatusOK || answer.StatusCode == http.StatusSwitchingProtocols:
			answer.Close = answer.Close || unwritten != nil
			c.left = math.MaxInt64
			return answer, nil
		}
	}
	return nil, errInformal
}

func (c *connection) write(r *http.Request) error {
	if err := r.Write(c.to); err != nil {
		return err
	}
	return c.to.Flush()
}

// release ends a request; keep says that its answer was read to its end.
func (c *connection) release(keep bool) {
	keep = c.stop() && keep && c.from.Buffered() == 0
	if c.writing != nil {
		select {
		case err := <-c.writing:
			keep = keep && err == nil
		default:
			c.Close() // which ends the write
			<-c.writing
			keep = false
		}
	}
	if keep {
		c.SetReadDeadline(time.Time{})
		c.pool.put(c)
	} else {
		c.Close()
	}
}

// quiet tells that the server has neither closed a connection that waits nor sent
// anything on it.
func (c *connection) quiet() bool {
	socket := c.Conn
	if over, ok := socket.(interface{ NetConn() net.Conn }); ok { // TLS
		socket = over.NetConn()
	}
	s, ok := socket.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var b [1]byte
	var got error
	err = raw.Read(func(fd uintptr) bool {
		_, _, got = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && (got == syscall.EAGAIN || got == syscall.EWOULDBLOCK)
}

// answerBody is the body of an answer. Its end gives the connection back.
type answerBody struct {
	from io.Reader
	of   *connection
	ctx  context.Context
	keep bool  // the connection may serve another
	err  error // of a read, once it was released
}

var errBodyClosed = errors.New("the answer was closed")

// Read implements io.Reader.
func (b *answerBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.from.Read(p)
	if err != nil {
		if why := b.ctx.Err(); why != nil && err != io.EOF {
			err = why
		}
		b.err = err
		b.of.release(err == io.EOF && b.keep)
	}
	return n, err
}

// Close closes the connection, unless all was read.
func (b *answerBody) Close() error {
	if b.err == nil {
		b.err = errBodyClosed
		b.of.release(false)
	}
	return nil
}

// finish reads what follows an answer that is whole, which is its end, so that the
// connection can serve another request. Many servers send it a moment later.
func (b *answerBody) finish() {
	if b.err == nil && b.keep {
		b.of.SetReadDeadline(time.Now().Add(restLimit))
		io.CopyN(io.Discard, b, restBytesMax)
	}
	b.Close()
}
