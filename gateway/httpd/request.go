package httpd

import (
	"bytes"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	"github.com/valyala/fasthttp/pprofhandler"
)

// Request is a client's request and the way to answer it. It is passed by value.
type Request struct {
	c    *fasthttp.RequestCtx
	conn *conn
}

// Field is one line of an answer's head.
type Field struct{ Name, Value string }

func requestOf(c *fasthttp.RequestCtx) Request { return Request{c, c.Conn().(*conn)} }

// NewRequest is an empty request over raw that no server has read, for tests.
func NewRequest(raw net.Conn) Request {
	return Request{new(fasthttp.RequestCtx), &conn{Conn: raw, socket: raw}}
}

// Method is the method as it was sent.
func (r Request) Method() string { return string(r.c.Method()) }

// Path is the path exactly as it was sent, without the query.
func (r Request) Path() string { return string(r.c.URI().PathOriginal()) }

// Query are the parameters of the query.
func (r Request) Query() url.Values {
	query := url.Values{}
	for key, value := range r.c.QueryArgs().All() {
		query.Add(string(key), string(value))
	}
	return query
}

// Header is the first value of a header, nil where there is none.
func (r Request) Header(name string) []byte { return r.c.Request.Header.Peek(name) }

// Headers are all values of a header, valid until the next call.
func (r Request) Headers(name string) [][]byte { return r.c.Request.Header.PeekAll(name) }

// Host is the address that the client asked for.
func (r Request) Host() []byte { return r.c.Request.Header.Host() }

// LocalAddr is the server's end of the connection.
func (r Request) LocalAddr() net.Addr { return r.c.LocalAddr() }

// RemoteAddr is the client's end of the connection.
func (r Request) RemoteAddr() net.Addr { return r.c.RemoteAddr() }

// ContentLength is the length of the body as the header tells it, negative
// where it does not.
func (r Request) ContentLength() int { return r.c.Request.Header.ContentLength() }

// Body is the body as it was sent.
func (r Request) Body() []byte { return r.c.Request.Body() }

// TakeBody returns the body in memory that outlives the handler, where it lies
// once. A small body in a large buffer is copied, and the buffer given back.
func (r Request) TakeBody() []byte {
	if body := r.Body(); cap(body) > 2*len(body) {
		defer r.DropBody()
		return bytes.Clone(body)
	}
	return r.c.Request.SwapBody(nil)
}

// DropBody gives the memory of the body back.
func (r Request) DropBody() { r.c.Request.ResetBody() }

// SetHeader sets a field of the answer's head, unless an Output writes it.
func (r Request) SetHeader(name, value string) { r.c.Response.Header.Set(name, value) }

// HasHeader tells that SetHeader has set a field.
func (r Request) HasHeader(name string) bool { return len(r.c.Response.Header.Peek(name)) > 0 }

// Answer makes the answer, which leaves when the handler returns.
func (r Request) Answer(status int, contentType string, body []byte) {
	r.c.SetStatusCode(status)
	r.c.SetContentType(contentType)
	r.c.SetBody(body)
}

// AnswerEmpty makes an answer without a body.
func (r Request) AnswerEmpty(status int) { r.c.SetStatusCode(status) }

// Status is that of the answer made so far.
func (r Request) Status() int { return r.c.Response.StatusCode() }

// AnswerBytes is the length of its body.
func (r Request) AnswerBytes() int { return len(r.c.Response.Body()) }

// CloseAfter closes the connection once the answer has left.
func (r Request) CloseAfter() { r.c.SetConnectionClose() }

// Abandon closes the connection without an answer, or after what an Output has
// written.
func (r Request) Abandon() {
	r.conn.mute.Store(true)
	r.CloseAfter()
}

// Watch calls left when the client goes, at once if it has gone already, and
// not after the handler has returned. A client that shuts its write side alone
// counts as gone.
func (r Request) Watch(left func()) { r.conn.watch(left) }

// Backlog says how many bytes that were written have not reached the client, and for
// how long in the connection's life the client's full receive window held them up.
func (r Request) Backlog() (unread int, stalled time.Duration) { return r.conn.backlog() }

// Alone tells that the client's address has no other open connection.
func (r Request) Alone() bool { return r.conn.alone() }

// Output writes the answer straight to the connection. A write that waits for
// the client longer than stallLimit fails.
func (r Request) Output(stallLimit time.Duration) Output {
	return Output{request: r, stallLimit: stallLimit}
}

// Adapt serves by a handler of net/http.
func Adapt(h http.Handler) func(Request) {
	serve := fasthttpadaptor.NewFastHTTPHandler(h)
	return func(r Request) { serve(r.c) }
}

// Profiles serves Go's profiles, below /debug/pprof/.
func Profiles(r Request) { pprofhandler.PprofHandler(r.c) }
