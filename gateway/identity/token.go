package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// token is a JWT (RFC 7519) in its signed form (RFC 7515), decoded but not trusted.
type token struct {
	alg, kid  string
	claims    claims
	signed    []byte // header and claims as they were sent
	signature []byte
}

// claims are what a token says. Names differ by case, which encoding/json does not
// see in structs.
type claims map[string]json.RawMessage

// isToken reports whether text has the form of a signed token: three parts.
func isToken(text []byte) bool { return bytes.Count(text, []byte(".")) == 2 }

var strict64 = base64.RawURLEncoding.Strict()

var errNotToken = errors.New("it is not a signed JSON Web Token")

// parseToken decodes a token. It checks its form alone.
func parseToken(text []byte) (*token, error) {
	if !isToken(text) {
		return nil, errNotToken
	}
	last := bytes.LastIndexByte(text, '.')
	header, payload, _ := bytes.Cut(text[:last], []byte("."))
	t := &token{signed: text[:last]}
	var head claims
	if decodePart(header, &head) != nil || decodePart(payload, &t.claims) != nil {
		return nil, errNotToken
	}
	var err error
	if t.signature, err = strict64.AppendDecode(nil, text[last+1:]); err != nil {
		return nil, errNotToken
	}
	t.alg, _ = head.text("alg")
	t.kid, _ = head.text("kid")
	if _, critical := head["crit"]; critical {
		return nil, errors.New("its header has crit, which names extensions that this gateway does not know")
	}
	if t.alg != algRS256 && t.alg != algES256 && t.alg != algEdDSA {
		return nil, errors.New("it must be signed by RS256, ES256 or EdDSA")
	}
	return t, nil
}

// decodePart decodes base64url of a JSON object.
func decodePart(part []byte, into *claims) error {
	text, err := strict64.AppendDecode(nil, part)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil || *into == nil {
		return errNotToken
	}
	return nil
}

// text is a claim that is a text and not empty.
func (c claims) text(name string) (text string, ok bool) {
	raw, ok := c.at(name)
	return text, ok && json.Unmarshal(raw, &text) == nil && text != ""
}

// list is a claim that is a list of texts, or one text.
func (c claims) list(name string) []string {
	raw, ok := c.at(name)
	var one string
	var many []string
	switch {
	case !ok:
	case json.Unmarshal(raw, &one) == nil:
		many = []string{one}
	case json.Unmarshal(raw, &many) != nil:
		return nil
	}
	return many
}

// at is a claim: the one of this very name, or else where its dots lead.
func (c claims) at(name string) (json.RawMessage, bool) {
	if raw, ok := c[name]; ok {
		return raw, true
	}
	first, rest, dotted := strings.Cut(name, ".")
	var inner claims
	if raw, ok := c[first]; !dotted || !ok || json.Unmarshal(raw, &inner) != nil {
		return nil, false
	}
	return inner.at(rest)
}

// instant is a claim that is a number of seconds since 1970; given says that there
// is such a claim, and ok that it is such a number.
func (c claims) instant(name string) (at time.Time, given, ok bool) {
	raw, given := c[name]
	if !given {
		return at, false, false
	}
	var seconds float64
	if json.Unmarshal(raw, &seconds) != nil || seconds < 0 || seconds > 1<<40 {
		return at, true, false
	}
	return time.Unix(int64(seconds), 0).UTC(), true, true // a fraction of a second is less than any leeway
}

// verify checks the signature.
func (t *token) verify(k *publicKey) bool {
	if k.alg != t.alg {
		return false
	}
	switch t.alg {
	case algRS256:
		sum := sha256.Sum256(t.signed)
		return rsa.VerifyPKCS1v15(k.rsa, crypto.SHA256, sum[:], t.signature) == nil
	case algES256:
		if len(t.signature) != 64 {
			return false
		}
		sum := sha256.Sum256(t.signed)
		r, s := new(big.Int).SetBytes(t.signature[:32]), new(big.Int).SetBytes(t.signature[32:])
		return ecdsa.Verify(k.ecdsa, sum[:], r, s)
	case algEdDSA:
		return ed25519.Verify(k.ed25519, t.signed, t.signature)
	}
	return false
}

// checkTime says what is wrong with the times of a token at now.
func (c claims) checkTime(now time.Time, leeway time.Duration) *Refusal {
	expires, given, ok := c.instant("exp")
	switch {
	case !given || !ok:
		return &Refusal{Reason: TokenTime, Message: "the token must have exp, the time when it expires"}
	case !now.Before(expires.Add(leeway)):
		return &Refusal{Reason: TokenTime, Message: "the token expired at " + expires.Format(time.RFC3339)}
	}
	for _, name := range []string{"nbf", "iat"} {
		at, given, ok := c.instant(name)
		switch {
		case given && !ok:
			return &Refusal{Reason: TokenTime, Message: "the token's " + name + " is not a time in seconds"}
		case given && now.Before(at.Add(-leeway)):
			return &Refusal{Reason: TokenTime, Message: "the token is not valid before " + at.Format(time.RFC3339)}
		}
	}
	return nil
}

func badToken(err error) *Refusal {
	return &Refusal{Reason: BadToken, Message: fmt.Sprintf("the token is not taken: %v", err)}
}
