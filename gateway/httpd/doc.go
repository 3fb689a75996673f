// Package httpd is the server side of HTTP/1: fasthttp, and the work around its
// gaps. No code outside this package sees a type of fasthttp.
//
// A Server calls its Handler for every request. Small answers are made with
// Request.Answer and leave by fasthttp when the handler returns; generated text
// leaves by an Output, which writes to the connection itself, so that the
// caller knows when each byte has left and what a slow reader holds up.
//
// What fasthttp does not do, and where this package does it:
//
//   - tell a handler that its client has left: an epoll goroutine watches the
//     connections (watch_linux.go, Request.Watch);
//   - write an answer piece by piece from the handler: Output writes it, and the
//     connection drops the second one that fasthttp sends afterwards (conn.go, mute);
//   - close without a reset that destroys the answer to a request whose body
//     still arrives (conn.go, linger);
//   - refuse a Transfer-Encoding it does not know, rather than take the body for
//     the next request, and say what was wrong with a request (unread.go);
//   - wait for its connections to end (server.go, Stop).
//
// Over TLS (tls.go, handshake.go) everything is the same, but that a connection over the limit is
// closed without an answer.
//
// Non-goals: certificates, HTTP/2, routes, and what an answer says.
//
// Ownership: New starts the watcher, Serve runs until Stop, and Close ends the
// watcher. A Request and everything it returns are valid until its handler
// returns, except the bytes of TakeBody.
package httpd
