package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write writes a certificate of that number, which is its own authority, and its key.
func write(t *testing.T, f Files, number int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	one := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, one, one, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put(t, f.Certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), number)
	put(t, f.Authorities, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), number)
	put(t, f.Key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), number)
}

// put writes a file that was changed at a time of its own, however coarse the clock of files is.
func put(t *testing.T, name, text string, number int64) {
	t.Helper()
	at := time.Unix(1e9+number, 0)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	f := Files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	write(t, f, 1)
	var log strings.Builder
	r, err := Open(f, time.Second, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	number := func() int64 {
		c, err := x509.ParseCertificate(r.Current(now).Certificate.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return c.SerialNumber.Int64()
	}
	if got := number(); got != 1 || r.Current(now).Authorities == nil {
		t.Fatalf("certificate %d", got)
	}
	write(t, f, 2)
	if got := number(); got != 1 {
		t.Errorf("certificate %d, before the files are looked at again", got)
	}
	now = now.Add(2 * time.Second)
	if got := number(); got != 2 {
		t.Errorf("certificate %d, want the renewed one", got)
	}
	// A key that does not fit, and one that is gone, change nothing; the next whole set does.
	put(t, f.Key, "half", 3)
	now = now.Add(2 * time.Second)
	if got := number(); got != 2 || strings.Count(log.String(), "were not taken") != 1 {
		t.Errorf("certificate %d; %s", got, &log)
	}
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if got := number(); got != 2 {
		t.Errorf("certificate %d", got)
	}
	write(t, f, 4)
	now = now.Add(2 * time.Second)
	if got := number(); got != 4 {
		t.Errorf("certificate %d, want the one after the broken ones", got)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	f := Files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	log := slog.New(slog.DiscardHandler)
	if _, err := Open(f, time.Second, log); err == nil || !strings.Contains(err.Error(), "cert.pem") {
		t.Errorf("no files: %v", err)
	}
	write(t, f, 1)
	put(t, f.Authorities, "nothing", 2)
	if _, err := Open(f, time.Second, log); err == nil || !strings.Contains(err.Error(), "ca.pem has no certificate in PEM") {
		t.Errorf("no authorities: %v", err)
	}
}
