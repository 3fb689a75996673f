package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	redirectsMax  = 10
	connectLimit  = 15 * time.Second
	retryWaitMin  = time.Second
	retryWaitMax  = 30 * time.Second
	retryAfterMax = 5 * time.Minute
	messageMax    = 300
)

func newTransport(cfg *Config) *http.Transport {
	return &http.Transport{
		Proxy:               cfg.Proxy,
		DialContext:         (&net.Dialer{Timeout: connectLimit}).DialContext,
		TLSHandshakeTimeout: connectLimit,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // a checksum is of the bytes as they are
	}
}

// statusError is an answer with an unexpected status.
type statusError struct {
	status     int
	byStore    bool   // sent by the store that the endpoint redirects to
	code       string // the Hub's own error code
	message    string
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the server answers %d %s", e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// transientError is a failure that the next attempt may not meet.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

var errStalled = errors.New("the connection stalled: nothing came for too long")

// reply is an answer, with what the endpoint said about the file before it
// redirected.
type reply struct {
	*http.Response
	etag string
	size int64 // of the whole file, -1 if unknown
	idle *time.Timer
	stop context.CancelCauseFunc
	ctx  context.Context
}

func (r *reply) close() {
	r.idle.Stop()
	r.Body.Close()
	r.stop(nil)
}

// Read reads the body; an attempt that stalls ends.
func (r *reply) read(p []byte, limit time.Duration) (int, error) {
	n, err := r.Body.Read(p)
	r.idle.Reset(limit)
	if err != nil && err != io.EOF {
		err = transientError{causeOf(r.ctx, err)}
	}
	return n, err
}

// causeOf returns why ctx ended, or err if it has not ended.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// send makes one attempt at a request and follows redirects. It sends the token
// to the endpoint's own host only.
func (h *Hub) send(ctx context.Context, method, address string, rangeFrom int64) (_ *reply, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	r := &reply{size: -1, ctx: ctx, stop: stop}
	r.idle = time.AfterFunc(h.cfg.StallLimit, func() { stop(errStalled) })
	defer func() {
		if err != nil {
			r.idle.Stop()
			stop(nil)
		}
	}()
	target, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	for range redirectsMax {
		response, err := h.transport.RoundTrip(h.request(ctx, method, target, rangeFrom))
		if err != nil {
			return nil, h.failed(causeOf(ctx, err))
		}
		h.note(r, target, response)
		switch response.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
			response.Body.Close()
			if target, err = follow(target, response.Header.Get("Location")); err != nil {
				return nil, err
			}
			continue
		case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
			r.Response = response
			return r, nil
		}
		defer response.Body.Close()
		refusal := newStatusError(response)
		refusal.byStore = !h.isEndpoint(target)
		return nil, refusal
	}
	return nil, fmt.Errorf("%s redirects more than %d times", address, redirectsMax)
}

func (h *Hub) request(ctx context.Context, method string, target *url.URL, rangeFrom int64) *http.Request {
	r := (&http.Request{Method: method, URL: target, Host: target.Host, Header: http.Header{}}).WithContext(ctx)
	r.Header.Set("User-Agent", h.cfg.UserAgent)
	r.Header.Set("Accept-Encoding", "identity")
	if h.cfg.Token != "" && h.isEndpoint(target) {
		r.Header.Set("Authorization", "Bearer "+h.cfg.Token)
	}
	if rangeFrom > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", rangeFrom))
	}
	return r
}

func (h *Hub) isEndpoint(target *url.URL) bool {
	return target.Scheme == h.endpoint.Scheme && strings.EqualFold(target.Host, h.endpoint.Host)
}

// follow returns the target of a redirect. It refuses one from https to http.
func follow(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case err != nil || location == "" || to.Host == "":
		return nil, fmt.Errorf("%s redirects to %q, which is no address", from.Host, location)
	case to.Scheme != "https" && (to.Scheme != "http" || from.Scheme == "https"):
		return nil, fmt.Errorf("%s redirects to %s by %s, which is refused", from.Host, to.Host, to.Scheme)
	}
	return to, nil
}

// note keeps what the endpoint says about the file. Headers of the store that it
// redirects to are ignored, because they use other names.
func (h *Hub) note(r *reply, target *url.URL, response *http.Response) {
	if !h.isEndpoint(target) || response.StatusCode >= 400 {
		return
	}
	linked := response.Header.Get("X-Linked-Etag")
	if linked == "" && r.etag == "" && response.StatusCode < 300 {
		linked = response.Header.Get("ETag")
	}
	if linked != "" {
		r.etag = strings.Trim(strings.TrimPrefix(linked, "W/"), `"`)
	}
	if n, err := strconv.ParseInt(response.Header.Get("X-Linked-Size"), 10, 64); err == nil && n >= 0 {
		r.size = n
	} else if response.StatusCode == http.StatusOK && r.size < 0 {
		r.size = response.ContentLength
	}
}

// failed marks err as transient if another attempt may succeed. A bad
// certificate is not transient.
func (h *Hub) failed(err error) error {
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, context.Canceled) {
		return err
	}
	return transientError{err}
}

func newStatusError(response *http.Response) *statusError {
	e := &statusError{status: response.StatusCode, code: response.Header.Get("X-Error-Code"), message: response.Header.Get("X-Error-Message")}
	e.message = e.message[:min(len(e.message), messageMax)]
	text := response.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		e.retryAfter = time.Duration(min(max(0, seconds), int(retryAfterMax/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		if sent, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			e.retryAfter = min(max(0, at.Sub(sent)), retryAfterMax)
		}
	}
	return e
}

// isTransient tells whether another attempt may succeed.
func isTransient(err error) bool {
	var s *statusError
	if errors.As(err, &s) {
		if s.byStore && s.status == http.StatusForbidden {
			return true // the address that the endpoint gave is no longer valid; the next attempt asks for another
		}
		return s.status >= 500 || s.status == http.StatusTooManyRequests || s.status == http.StatusRequestTimeout
	}
	return errors.As(err, new(transientError))
}

// retry repeats try until it succeeds, fails for good, or fails attempts times in
// a row without progress.
func (h *Hub) retry(ctx context.Context, attempts int, try func() (progress bool, err error)) error {
	for failures := 0; ; {
		progress, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failures++; progress {
			failures = 1
		}
		if !isTransient(err) || failures >= attempts {
			return err
		}
		wait := h.backoff(failures, err)
		h.warn("%v; trying again in %v", err, wait.Round(100*time.Millisecond))
		if err := h.cfg.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// backoff returns the wait before the next attempt. It doubles with each failure
// and half of it is random; a longer Retry-After of the server wins.
func (h *Hub) backoff(failures int, err error) time.Duration {
	wait := min(retryWaitMin<<min(failures-1, 10), retryWaitMax)
	wait = wait/2 + time.Duration(h.cfg.Random()*float64(wait/2))
	var s *statusError
	if errors.As(err, &s) {
		wait = max(wait, s.retryAfter)
	}
	return wait
}

// getAll reads an answer of at most listingBytesMax.
func (h *Hub) getAll(ctx context.Context, address string, attempts int) (text []byte, err error) {
	err = h.retry(ctx, attempts, func() (bool, error) {
		r, err := h.send(ctx, http.MethodGet, address, 0)
		if err != nil {
			return false, err
		}
		defer r.close()
		text, err = io.ReadAll(io.LimitReader(readerFunc(func(p []byte) (int, error) { return r.read(p, h.cfg.StallLimit) }), listingBytesMax+1))
		if len(text) > listingBytesMax {
			return false, fmt.Errorf("the answer of %s is longer than %d bytes", h.cfg.Endpoint, listingBytesMax)
		}
		return false, err
	})
	return text, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// explain adds to a refusal what the user can do about it.
func (h *Hub) explain(ref Ref, err error) error {
	var s *statusError
	if !errors.As(err, &s) || s.byStore {
		return fmt.Errorf("%s: %w", ref.Repo, err)
	}
	page := h.cfg.Endpoint + "/" + ref.Repo
	advice := ""
	switch {
	case s.code == "GatedRepo" && h.cfg.Token == "":
		advice = "its makers ask for a consent: accept the licence at " + page + " and set HF_TOKEN to a token of that account"
	case s.code == "GatedRepo":
		advice = "its makers ask for a consent that the token's account has not: accept the licence at " + page + ", or set HF_TOKEN to a token of an account that has"
	case s.status == http.StatusUnauthorized && h.cfg.Token == "":
		advice = "it does not exist, or only for some: check the name, or set HF_TOKEN"
	case s.status == http.StatusUnauthorized:
		advice = "it does not exist, or not for the token in HF_TOKEN: check both"
	case s.status == http.StatusForbidden:
		advice = "access is refused: accept the licence at " + page + ", or check what the token in HF_TOKEN may read"
	case s.code == "RevisionNotFound":
		advice = fmt.Sprintf("there is no revision %q", ref.revision())
	case s.code == "EntryNotFound":
		advice = "the file is not there"
	case s.status == http.StatusNotFound:
		advice = "there is no such repository, or no revision " + strconv.Quote(ref.revision())
	}
	if advice == "" {
		return fmt.Errorf("%s: %w", ref.Repo, err)
	}
	return fmt.Errorf("%s: %s (%w)", ref.Repo, advice, err)
}
