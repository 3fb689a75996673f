package httpd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
)

// Certificate is the client's certificate, which TLS has verified; nil for none.
func (r Request) Certificate() *x509.Certificate {
	over, ok := r.conn.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	if chains := over.ConnectionState().VerifiedChains; len(chains) > 0 {
		return chains[0][0]
	}
	return nil
}

// Read implements net.Conn. A client that speaks HTTP without TLS is told so, as far as
// that is possible.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil {
		return n, nil
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && isMethod(header.RecordHeader[:]) {
		_, _ = io.WriteString(c.socket, plainAnswer)
		return 0, io.EOF
	}
	return n, err
}

const plainAnswer = "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis address speaks TLS: use https.\n"

// isMethod tells the beginning of an HTTP request.
func isMethod(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '/' && (c < 'A' || 'Z' < c) {
			return false
		}
	}
	return true
}

// shakesHands tells that TLS has not begun: the client did not want this server's
// certificate, has none that is trusted here, or spoke something else.
func (c *conn) shakesHands() bool {
	over, ok := c.Conn.(*tls.Conn)
	return ok && !over.ConnectionState().HandshakeComplete
}
