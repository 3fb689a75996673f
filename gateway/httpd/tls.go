package httpd

import (
	"crypto/tls"
	"crypto/x509"
)

// Certificate is the client's certificate, which TLS has verified; nil for none.
func (r Request) Certificate() *x509.Certificate {
	over := r.conn.overTLS()
	if over == nil {
		return nil
	}
	if chains := over.ConnectionState().VerifiedChains; len(chains) > 0 {
		return chains[0][0]
	}
	return nil
}

// overTLS is the connection's TLS; nil without.
func (c *conn) overTLS() interface{ ConnectionState() tls.ConnectionState } {
	over, _ := c.Conn.(interface{ ConnectionState() tls.ConnectionState })
	return over
}

// shakesHands tells that TLS has not begun.
func (c *conn) shakesHands() bool {
	over := c.overTLS()
	return over != nil && !over.ConnectionState().HandshakeComplete
}
