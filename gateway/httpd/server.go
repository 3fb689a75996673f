package httpd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// Config bounds what a client may send and how long it may take. Nothing has a
// default here.
type Config struct {
	ConnectionsMax  int
	HeaderBytesMax  int
	BodyBytesMax    int // as it was sent
	HeaderLimit     time.Duration
	BodyLimit       time.Duration
	IdleLimit       time.Duration
	WriteStallLimit time.Duration // of one write
	// TLS is spoken on TCP listeners; nil for none.
	TLS *tls.Config
	// HandshakeFailed is told why TLS could not begin with a client that did not simply
	// leave; nil tells nobody. It is called from many goroutines.
	HandshakeFailed func(peer net.Addr, why Handshake, err error)
}

// Handler answers requests. Its methods are called from many goroutines.
type Handler interface {
	// Serve answers a whole request.
	Serve(Request)
	// Expect decides by the headers alone whether a client that asked with
	// Expect: 100-continue may send its body. Where it may not, Expect answers.
	Expect(Request) (proceed bool)
	// Unread answers a request that could not be read; of the request only what
	// was read before is there.
	Unread(Request, Why)
	// Full is the answer to a connection over the limit: a 503 in JSON.
	Full() (fields []Field, body []byte)
}

// Server serves HTTP on any number of listeners.
type Server struct {
	// Fixed at construction.
	cfg     Config
	handler Handler
	http    *fasthttp.Server
	watcher watcher

	mu        sync.Mutex
	listeners []*listener
	stopped   bool // nothing is accepted any more
}

// New makes a Server; Close releases it.
func New(cfg Config, handler Handler) (*Server, error) {
	w, err := newWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch connections: %w", err)
	}
	s := &Server{cfg: cfg, handler: handler, watcher: w}
	s.http = &fasthttp.Server{
		Handler:       s.serve,
		ErrorHandler:  s.unread,
		ExpectHandler: s.expect,
		ConnState:     connState,
		HeaderReceived: func(*fasthttp.RequestHeader) fasthttp.RequestConfig {
			return fasthttp.RequestConfig{ReadTimeout: cfg.BodyLimit}
		},
		Concurrency:           2 * cfg.ConnectionsMax,
		ReadBufferSize:        cfg.HeaderBytesMax,
		MaxRequestBodySize:    cfg.BodyBytesMax,
		ReadTimeout:           cfg.HeaderLimit,
		WriteTimeout:          cfg.WriteStallLimit,
		IdleTimeout:           cfg.IdleLimit,
		NoDefaultServerHeader: true,
		MaxIdleWorkerDuration: time.Second,
		// Memory of idle connections must not grow with the limits.
		ReduceMemoryUsage:            true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		Logger:                       quietLogger{},
	}
	return s, nil
}

// quietLogger drops fasthttp's notes about connections.
type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

// Serve answers clients on ln until Stop.
func (s *Server) Serve(ln net.Listener) error {
	l := &listener{Listener: ln, watcher: s.watcher, max: s.cfg.ConnectionsMax, failed: s.cfg.HandshakeFailed, full: s.handler.Full, refusals: make(chan struct{}, refusalsMax), conns: map[*conn]struct{}{}}
	if ln.Addr().Network() == "tcp" {
		l.tls = s.cfg.TLS
	}
	s.mu.Lock()
	s.listeners = append(s.listeners, l)
	stopped := s.stopped
	s.mu.Unlock()
	if stopped {
		return ln.Close()
	}
	return s.http.Serve(l)
}

// StopAccepting closes the listeners itself: fasthttp knows only those whose
// Serve has already begun to run.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, l := range s.listeners {
		_ = l.Listener.Close() // fasthttp closes it again and reports that
	}
}

// stopGrace lets responses that are on their way leave before the remaining,
// idle, connections are closed.
const stopGrace = 150 * time.Millisecond

// Stop ends all connections, and returns when they are closed or when ctx ends.
// Call StopAccepting first.
func (s *Server) Stop(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	// Its error is a listener closed before, or connections that are open yet.
	_ = s.http.ShutdownWithContext(short)
	s.mu.Lock()
	listeners := s.listeners
	s.mu.Unlock()
	for _, l := range listeners {
		l.closeAll()
	}
	// The count leaves out one for an accept loop, which has ended: -1 is none.
	// fasthttp has no way to wait for it.
	for s.http.GetOpenConnectionsCount() >= 0 {
		select {
		case <-ctx.Done():
			return fmt.Errorf("connections stayed open: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// Close releases what New took. Call it after Stop.
func (s *Server) Close() error { return s.watcher.Close() }

// serve is fasthttp's handler of whole requests.
func (s *Server) serve(c *fasthttp.RequestCtx) {
	if hidesCoding(&c.Request.Header) {
		s.refuse(c, UnknownCoding)
		return
	}
	r := requestOf(c)
	defer r.conn.unwatch()
	s.handler.Serve(r)
}

// expect is fasthttp's handler of Expect: 100-continue.
func (s *Server) expect(c *fasthttp.RequestCtx) (status int) {
	if hidesCoding(&c.Request.Header) {
		s.refuse(c, UnknownCoding)
		return c.Response.StatusCode()
	}
	r := requestOf(c)
	if s.handler.Expect(r) {
		return fasthttp.StatusContinue
	}
	r.conn.linger.Store(true)
	r.CloseAfter()
	return c.Response.StatusCode()
}

// connState undoes, between requests, what a handler did to the connection.
func connState(nc net.Conn, state fasthttp.ConnState) {
	if c, ok := nc.(*conn); ok && state == fasthttp.StateIdle {
		c.mute.Store(false)
		_ = c.Conn.SetWriteDeadline(time.Time{})
	}
}
