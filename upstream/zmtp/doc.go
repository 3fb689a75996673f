// Package zmtp reads what a ZeroMQ publisher sends, over TCP or a Unix socket.
//
// Goal: the client's side of ZMTP 3.0 with the mechanism NULL, for two kinds of
// sockets: SUB, which hears a publisher, and DEALER, which asks a ROUTER and reads its
// answers. libzmq 4 and its bindings are the other end.
//
// Non-goals: other kinds of sockets and mechanisms, listening, queues, and connecting
// again, which is the caller's.
//
// A peer is not trusted: a message has at most so many bytes as the caller says, and
// framesMost frames, and whatever else breaks the protocol ends the connection.
//
// Ownership: a Conn belongs to one goroutine. Close may be called from any.
package zmtp
