// Package certs reads certificates, and reads them again when their files change.
//
// Goal: a certificate that is renewed is in use soon, without a restart and without an end to
// connections that are open. A set that does not fit together is never used.
//
// Non-goals: what a connection does with them (the caller's tls.Config), and watching files by
// events: they are looked at when a connection opens.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files are PEM files: a certificate with its chain, its key, and authorities ("" for none).
type Files struct{ Certificate, Key, Authorities string }

// Set is what the files hold. It does not change.
type Set struct {
	Certificate tls.Certificate
	Authorities *x509.CertPool // nil where there is no such file
}

// Reader has the newest set that could be read. Its methods may be called from any goroutine.
type Reader struct {
	files Files
	every time.Duration
	log   *slog.Logger

	mu     sync.Mutex // guards all below
	looked time.Time
	read   [3]mark // what now, or the failed attempt after it, was read from
	now    *Set
}

// mark tells one version of a file from another.
type mark struct {
	modified time.Time
	bytes    int64
}

// Open reads the files, which are then looked at no more often than every so long. log is
// told when they have changed, and whether they were taken.
func Open(files Files, every time.Duration, log *slog.Logger) (*Reader, error) {
	r := &Reader{files: files, every: every, log: log, looked: time.Now(), read: files.marks()}
	var err error
	r.now, err = files.load()
	return r, err
}

// Current is the set for a connection that opens at now.
func (r *Reader) Current(now time.Time) *Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.looked) < r.every {
		return r.now
	}
	r.looked = now
	marks := r.files.marks()
	if marks == r.read {
		return r.now
	}
	r.read = marks
	next, err := r.files.load()
	if err != nil { // a file that is being written is looked at again when it is whole
		r.log.Error("the certificate files have changed and were not taken, what held before goes on holding", "error", err)
		return r.now
	}
	r.log.Info("the certificate files have changed and were taken")
	r.now = next
	return next
}

func (f *Files) load() (*Set, error) {
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, err
	}
	s := &Set{Certificate: pair}
	if f.Authorities == "" {
		return s, nil
	}
	text, err := os.ReadFile(f.Authorities)
	if err != nil {
		return nil, err
	}
	s.Authorities = x509.NewCertPool()
	if !s.Authorities.AppendCertsFromPEM(text) {
		return nil, errors.New(f.Authorities + " has no certificate in PEM")
	}
	return s, nil
}

func (f *Files) marks() (marks [3]mark) {
	for i, name := range [...]string{f.Certificate, f.Key, f.Authorities} {
		if info, err := os.Stat(name); err == nil {
			marks[i] = mark{info.ModTime(), info.Size()}
		}
	}
	return marks
}
