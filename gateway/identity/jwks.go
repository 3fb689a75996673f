package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// Ways of signing that are taken. There are no others: none, and those with a
// shared secret, are refused whatever the issuer's keys are.
const (
	algRS256 = "RS256"
	algES256 = "ES256"
	algEdDSA = "EdDSA"
)

// jwks are the public keys of an issuer that verify signatures. It never changes.
type jwks struct {
	keys []publicKey
}

// publicKey is one key. Its kind alone says which way of signing it verifies, so no
// token can have it taken for another kind.
type publicKey struct {
	id      string
	alg     string
	rsa     *rsa.PublicKey
	ecdsa   *ecdsa.PublicKey
	ed25519 ed25519.PublicKey
}

// find is the key with an id for a way of signing. A token without an id may be
// signed by the only key for its way.
func (j *jwks) find(id, alg string) *publicKey {
	var found *publicKey
	for i := range j.keys {
		k := &j.keys[i]
		if k.alg != alg || id != "" && k.id != id {
			continue
		}
		if found != nil {
			return nil
		}
		found = k
	}
	return found
}

// jwk is a key as RFC 7517 writes it.
type jwk struct {
	Kty, Use, Alg, Kid, Crv, N, E, X, Y string
}

const (
	jwksKeysMax = 64
	rsaBitsMin  = 2048
	rsaBitsMax  = 8192 // a longer one takes long to verify with
)

// parseJWKS reads a set of keys. Those for other uses or ways of signing are left
// out, as RFC 7517 asks; a set without any that is left is a mistake.
func parseJWKS(body []byte) (*jwks, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("is not a JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > jwksKeysMax {
		return nil, fmt.Errorf("has %d keys; at most %d are taken", len(set.Keys), jwksKeysMax)
	}
	parsed := &jwks{}
	for i, raw := range set.Keys {
		var j jwk
		if err := json.Unmarshal(raw, &j); err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if j.Use != "" && j.Use != "sig" {
			continue
		}
		k, err := j.public()
		if err != nil {
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		}
		if k != nil && (j.Alg == "" || j.Alg == k.alg) {
			parsed.keys = append(parsed.keys, *k)
		}
	}
	if len(parsed.keys) == 0 {
		return nil, errors.New("has no key for RS256, ES256 or EdDSA signatures")
	}
	return parsed, nil
}

// public is the key, nil for a kind that is not taken.
func (j *jwk) public() (*publicKey, error) {
	k := &publicKey{id: j.Kid}
	switch {
	case j.Kty == "RSA":
		n, err1 := number(j.N)
		e, err2 := number(j.E)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if bits := n.BitLen(); bits < rsaBitsMin || bits > rsaBitsMax {
			return nil, fmt.Errorf("is an RSA key of %d bits; %d to %d are taken", bits, rsaBitsMin, rsaBitsMax)
		}
		if !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 {
			return nil, errors.New("has an RSA exponent that is not taken")
		}
		k.alg, k.rsa = algRS256, &rsa.PublicKey{N: n, E: int(e.Int64())}
	case j.Kty == "EC" && j.Crv == "P-256":
		x, err1 := coordinate(j.X)
		y, err2 := coordinate(j.Y)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		point := append(append([]byte{4}, x...), y...)
		public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
		if err != nil {
			return nil, errors.New("is no point of P-256")
		}
		k.alg, k.ecdsa = algES256, public
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		x, err := coordinate(j.X)
		if err != nil {
			return nil, err
		}
		k.alg, k.ed25519 = algEdDSA, x
	default:
		return nil, nil
	}
	return k, nil
}

func number(text string) (*big.Int, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > rsaBitsMax/8+1 {
		return nil, errors.New("has a number that is not base64url")
	}
	return new(big.Int).SetBytes(b), nil
}

func coordinate(text string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != 32 {
		return nil, errors.New("has a coordinate that is not 32 bytes of base64url")
	}
	return b, nil
}
