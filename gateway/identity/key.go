package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The text of a key: fbk_, its id of 16 hexadecimal digits, _, and 256 random bits
// as 43 characters of base64url. Id and form are public.
const (
	keyPrefix   = "fbk_"
	idBytes     = 8
	secretBytes = 32
	secretAt    = len(keyPrefix) + 2*idBytes + 1
	keyLength   = secretAt + 43
	saltBytes   = 16
)

// keyID is the public part of a key.
type keyID [2 * idBytes]byte

// idOf is the id of a text that has the form of a key.
func idOf(text []byte) (id keyID, ok bool) {
	if len(text) != keyLength || string(text[:len(keyPrefix)]) != keyPrefix || text[secretAt-1] != '_' {
		return id, false
	}
	copy(id[:], text[len(keyPrefix):])
	return id, true
}

// hash is what is kept of a key: a salt and SHA-256 of salt and text.
type hash struct {
	salt   [saltBytes]byte
	digest [sha256.Size]byte
}

// hashPrefix begins a hash as text; salt and digest follow in hexadecimal.
const hashPrefix = "sha256:"

func (h *hash) String() string {
	return hashPrefix + hex.EncodeToString(h.salt[:]) + ":" + hex.EncodeToString(h.digest[:])
}

var errHash = errors.New("is not a hash as forebay key new writes it: sha256:, 32 digits, a colon, 64 digits, all hexadecimal")

// parseHash reads a hash. The error never shows the text, which may be a key that
// was put in the wrong place.
func parseHash(text string) (h hash, err error) {
	rest, ok := strings.CutPrefix(text, hashPrefix)
	salt, digest, two := strings.Cut(rest, ":")
	if !ok || !two || len(salt) != 2*saltBytes || len(digest) != 2*sha256.Size {
		return h, errHash
	}
	if _, err := hex.Decode(h.salt[:], []byte(salt)); err != nil {
		return h, errHash
	}
	if _, err := hex.Decode(h.digest[:], []byte(digest)); err != nil {
		return h, errHash
	}
	return h, nil
}

// digest is SHA-256 of a salt and a key's text of keyLength bytes.
func digest(salt *[saltBytes]byte, key []byte) [sha256.Size]byte {
	var b [saltBytes + keyLength]byte
	copy(b[:], salt[:])
	copy(b[saltBytes:], key)
	return sha256.Sum256(b[:])
}

// matches compares in constant time.
func (h *hash) matches(key []byte) bool {
	d := digest(&h.salt, key)
	return subtle.ConstantTimeCompare(d[:], h.digest[:]) == 1
}

// mint makes a new key: its text, for its user alone, and what is kept of it.
func mint() (key, id string, h hash) {
	var b [idBytes + secretBytes]byte
	rand.Read(b[:])
	rand.Read(h.salt[:])
	id = hex.EncodeToString(b[:idBytes])
	key = keyPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(b[idBytes:])
	h.digest = digest(&h.salt, []byte(key))
	return key, id, h
}

// nameForm is the form of a key's name, which logs, limits and file names carry.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func badName(name string) error {
	return fmt.Errorf("%q is not a name of 1 to 64 letters, digits, dots, dashes and underscores that begins with a letter or digit", name)
}
