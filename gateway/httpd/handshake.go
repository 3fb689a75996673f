package httpd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
)

// Handshake says why TLS could not begin.
type Handshake uint8

// The reasons. The list is closed.
const (
	HandshakeOther       Handshake = iota
	HandshakePlain                 // the client speaks HTTP without TLS
	HandshakeNotTLS                // what it speaks is neither
	HandshakeVersion               // it knows no version of TLS that is spoken here
	HandshakeCipher                // no cipher, key exchange or kind of signature is known to both
	HandshakeProtocol              // it wants another protocol than HTTP/1.1
	HandshakeNoCert                // it shows no certificate where one is needed
	HandshakeCertExpired           // its certificate has expired, or is not valid yet
	HandshakeCertUnknown           // its certificate is of an authority that is not trusted here
	HandshakeCertInvalid           // something else is wrong with its certificate
	HandshakeOurCert               // it does not accept this server's certificate
	HandshakeTimedOut              // it was too slow
	HandshakeCount       = iota
)

var handshakeNames = [HandshakeCount]string{
	"other", "plain_http", "not_tls", "version", "cipher", "protocol", "no_client_certificate",
	"client_certificate_expired", "client_certificate_unknown", "client_certificate_invalid", "server_certificate_refused", "timed_out",
}

func (h Handshake) String() string { return handshakeNames[h] }

// handshakeOf reads crypto/tls's errors; some have no type, and are known by their texts
// alone. A test has a client for each of these.
func handshakeOf(err error) Handshake {
	var header tls.RecordHeaderError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	var alert *net.OpError // "remote error" of the client's, "local error" of ours
	var network net.Error
	switch {
	case errors.As(err, &header):
		if isMethod(header.RecordHeader[:]) {
			return HandshakePlain
		}
		return HandshakeNotTLS
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return HandshakeCertExpired
	case errors.As(err, &unknown):
		return HandshakeCertUnknown
	case errors.As(err, &certificate):
		return HandshakeCertInvalid
	case errors.As(err, &alert) && alert.Op == "remote error":
		return alertOf(alert.Err.Error())
	case errors.As(err, &alert) && strings.Contains(alert.Err.Error(), "bad record MAC"):
		// OpenSSL does not encrypt its alert about a certificate in TLS 1.3, so that it cannot
		// be read here.
		return HandshakeOurCert
	case errors.As(err, &network) && network.Timeout():
		return HandshakeTimedOut
	}
	for part, why := range handshakeTexts {
		if strings.Contains(err.Error(), part) {
			return why
		}
	}
	return HandshakeOther
}

// handshakeTexts are parts of the errors that have no type; no error has two.
var handshakeTexts = map[string]Handshake{
	"unsupported versions":              HandshakeVersion,
	"inappropriate protocol fallback":   HandshakeVersion,
	"no cipher suite supported":         HandshakeCipher,
	"no key exchanges supported":        HandshakeCipher,
	"signature algorithms":              HandshakeCipher,
	"unsupported application protocols": HandshakeProtocol,
	"didn't provide a certificate":      HandshakeNoCert,
	"client certificate":                HandshakeCertInvalid,
}

// alertOf reads what the client said when it ended the handshake. Most such alerts are
// about this server's certificate.
func alertOf(alert string) Handshake {
	switch {
	case strings.Contains(alert, "certificate"), strings.Contains(alert, "unknown CA"):
		return HandshakeOurCert
	case strings.Contains(alert, "protocol version"):
		return HandshakeVersion
	}
	return HandshakeOther
}

// Read implements net.Conn. The first one shakes hands where TLS is spoken; fasthttp hides
// why it fails. A client that speaks HTTP without TLS is told so, as far as that is possible.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil || !c.shakesHands() || isEnd(err) {
		return n, err
	}
	if c.listener.failed != nil {
		c.listener.failed(c.RemoteAddr(), handshakeOf(err), err)
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && isMethod(header.RecordHeader[:]) {
		_, _ = io.WriteString(header.Conn, plainAnswer)
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
