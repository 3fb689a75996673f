package siblings

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Headers of a hop.
const (
	SignatureHeader = "X-Forebay-Hop"
	FormatHeader    = "X-Forebay-Hop-Format"
)

// clockSlack is how far the clocks of two replicas may differ, and so how long
// somebody who reads a hop could send it again.
const clockSlack = 2 * time.Minute

// sign proves that whoever has the secret sends body to the replica called to, at now.
func sign(secret []byte, path, to string, body []byte, now time.Time) string {
	at := strconv.FormatInt(now.UnixMilli(), 10)
	return at + "." + hex.EncodeToString(mac(secret, path, to, at, body))
}

func mac(secret []byte, path, to, at string, body []byte) []byte {
	m := hmac.New(sha256.New, secret)
	sum := sha256.Sum256(body)
	fmt.Fprintf(m, "forebay hop\n%s\n%s\n%s\n%x", path, to, at, sum)
	return m.Sum(nil)
}

// Why a hop is not taken.
var (
	errUnsigned = errors.New("the hop is not signed with the secret of this replica")
	errClocks   = errors.New("the hop was signed more than 2 minutes ago or ahead: set the clocks of the replicas")
)

// verify checks a signature that was made for this replica.
func verify(secret []byte, signature, path, to string, body []byte, now time.Time) error {
	at, sum, ok := strings.Cut(signature, ".")
	given, err := hex.DecodeString(sum)
	if !ok || err != nil || len(secret) == 0 || !hmac.Equal(given, mac(secret, path, to, at, body)) {
		return errUnsigned
	}
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || now.Sub(time.UnixMilli(ms)).Abs() > clockSlack {
		return errClocks
	}
	return nil
}

// secretLeast is the fewest bytes of a secret.
const secretLeast = 16

// readSecret reads the secret of a file; nil for no file.
func readSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("siblings.secret_file: %w", err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if len(secret) < secretLeast {
		return nil, fmt.Errorf("siblings.secret_file: %s must hold at least %d bytes", path, secretLeast)
	}
	return []byte(secret), nil
}
