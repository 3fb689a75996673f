package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// client sends requests over connections of its own, each of which serves one
// request at a time and is used again. A net/http.Transport would cost two
// goroutines for each connection and several times the processor time, which it
// would take from the server.
type client struct {
	address string // host:port
	model   string

	mu   sync.Mutex
	idle []*connection // the last one used last
	open map[*connection]bool
	over bool // no more connections
}

type connection struct {
	net.Conn
	in    *bufio.Reader
	body  *bufio.Reader
	out   []byte
	fresh bool // it has served no request yet
}

func newClient(address, model string) *client {
	return &client{address: address, model: model, open: map[*connection]bool{}}
}

// idleMax is how many connections are kept for later requests.
const idleMax = 2000

func (c *client) get() (*connection, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return conn, nil
	}
	c.mu.Unlock()
	return c.dial()
}

func (c *client) dial() (*connection, error) {
	socket, err := net.DialTimeout("tcp", c.address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: socket, in: bufio.NewReaderSize(socket, 4096), body: bufio.NewReaderSize(nil, 4096), fresh: true}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		socket.Close()
		return nil, net.ErrClosed
	}
	c.open[conn] = true
	return conn, nil
}

// drop closes a connection for good.
func (c *client) drop(conn *connection) {
	conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

func (c *client) put(conn *connection) {
	conn.fresh = false
	c.mu.Lock()
	if len(c.idle) < idleMax {
		c.idle = append(c.idle, conn)
		conn = nil
	}
	c.mu.Unlock()
	if conn != nil {
		c.drop(conn)
	}
}

// close closes all connections, those in use too, so that the server has nothing to
// finish before it stops.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for conn := range c.open {
		conn.Close()
	}
}

// answer is what the client sees of an answer. Times count from the sending; first
// is 0 if no content came.
type answer struct {
	status     int
	code       string // of the error body, or ""
	retryAfter int    // seconds, 0 for none
	first, end time.Duration
	pieces     int   // with content
	inWindow   int   // of them, those within the window of the run
	cut        bool  // by the client's own limit
	err        error // the connection or the answer is broken
}

// window is the part of a run that rates are counted in.
type window struct{ from, until time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.until) }

// do sends a request and reads its answer, until the limit.
func (c *client) do(r *request, id string, w window, limit time.Time) (a answer) {
	sent := time.Now()
	for {
		conn, err := c.get()
		if err == nil {
			err = conn.SetDeadline(limit)
		}
		if err != nil {
			a.err, a.end = err, time.Since(sent)
			return a
		}
		reusable, err := conn.exchange(r, c, id, sent, w, &a)
		a.end = time.Since(sent)
		if err == nil && reusable {
			c.put(conn)
			return a
		}
		c.drop(conn)
		if err != nil && a.status == 0 && !conn.fresh && !errors.Is(err, os.ErrDeadlineExceeded) {
			continue // the server had closed the idle connection
		}
		a.cut = errors.Is(err, os.ErrDeadlineExceeded)
		if !a.cut {
			a.err = err
		}
		return a
	}
}

// exchange sends one request and reads its answer. It tells whether the connection
// can serve another one.
func (c *connection) exchange(r *request, to *client, id string, sent time.Time, w window, a *answer) (reusable bool, err error) {
	if _, err := c.Write(c.encode(r, to, id)); err != nil {
		return false, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	a.status = response.StatusCode
	a.retryAfter, _ = strconv.Atoi(response.Header.Get("Retry-After"))
	if a.status != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		a.code = errorCode(text)
		return err == nil && !response.Close, err
	}
	c.body.Reset(response.Body)
	if err := c.stream(sent, w, a); err != nil {
		return false, err
	}
	return !response.Close, nil
}

// encode returns the bytes of a request; head and body are one write.
func (c *connection) encode(r *request, to *client, id string) []byte {
	const room = 512 // for the head, before the body
	b := r.appendBody(append(c.out[:0], make([]byte, room)...), to.model)
	c.out = b
	head := make([]byte, 0, room)
	head = fmt.Appendf(head, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %s\r\n", to.address, len(b)-room, id)
	if r.source == batch || r.source == offline {
		head = fmt.Appendf(head, "X-Forebay-Class: %s\r\n", r.source)
	}
	head = append(head, "\r\n"...)
	begin := room - len(head)
	copy(b[begin:], head)
	return b[begin:]
}

var (
	contentKey   = []byte(`"content":"`)
	contentEmpty = []byte(`"content":""`)
	errorPrefix  = []byte(`data: {"error"`)
	donePrefix   = []byte(`data: [DONE]`)
)

// stream reads the events of a streamed answer to their end.
func (c *connection) stream(sent time.Time, w window, a *answer) error {
	done := false
	for {
		line, err := c.body.ReadSlice('\n')
		switch {
		case err == io.EOF && (done || a.code != ""):
			return nil
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil && !errors.Is(err, bufio.ErrBufferFull): // of a long line the begin is enough
			return err
		}
		switch {
		case bytes.HasPrefix(line, donePrefix):
			done = true
		case bytes.HasPrefix(line, errorPrefix):
			a.code = errorCode(bytes.TrimPrefix(line, []byte("data: ")))
		case bytes.Contains(line, contentKey) && !bytes.Contains(line, contentEmpty):
			now := time.Now()
			if a.pieces++; a.pieces == 1 {
				a.first = now.Sub(sent)
			}
			if w.has(now) {
				a.inWindow++
			}
		}
	}
}

// errorCode returns the code of an error body, or else its type.
func errorCode(body []byte) string {
	var e struct {
		Error struct {
			Type string          `json:"type"`
			Code json.RawMessage `json:"code"` // a number at some servers
		} `json:"error"`
	}
	if json.Unmarshal(body, &e) != nil {
		return "unreadable"
	}
	var code string
	if json.Unmarshal(e.Error.Code, &code) == nil && code != "" {
		return code
	}
	if e.Error.Type != "" {
		return e.Error.Type
	}
	return "unknown"
}
