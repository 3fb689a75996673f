package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Waits between fetches of an issuer's keys.
const (
	fetchWaitMin = time.Second     // after the first failure; it doubles
	fetchWaitMax = 5 * time.Minute // and ends here
	// unknownWait is the least time between two fetches that tokens with an unknown
	// kid cause, so that nobody can have the gateway flood an issuer.
	unknownWait = time.Minute
)

// keySet is a set of an issuer's keys that is brought up to date: a URL by fetching
// it, a file when it changes. A failure keeps the keys that were there.
type keySet struct {
	place    string
	fetch    func() ([]byte, error)
	interval time.Duration
	limit    time.Duration // of a fetch, for those who wait for it too
	bytesMax int
	log      *slog.Logger

	seen, tried string // signatures of a file, at the last look and the last refresh

	current   atomic.Pointer[jwks]
	fetched   atomic.Int64 // when it last succeeded, in seconds since 1970; 0 is never
	successes atomic.Uint64
	failures  atomic.Uint64

	mu      sync.Mutex
	asked   time.Time     // when an unknown kid last caused a fetch
	pending bool          // that fetch has not ended
	wake    chan struct{} // receives when one does
	updated chan struct{} // closed and replaced after each fetch
}

func newKeySet(place string, cfg *Config, log *slog.Logger) *keySet {
	k := &keySet{place: place, interval: cfg.RefreshInterval, limit: cfg.FetchLimit, bytesMax: cfg.JWKSBytesMax, log: log, wake: make(chan struct{}, 1), updated: make(chan struct{})}
	if isURL(place) {
		client := &http.Client{Timeout: cfg.FetchLimit, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("it leads on to %s: give that as jwks", r.URL.Redacted())
		}}
		k.fetch = func() ([]byte, error) { return fetchURL(client, place, k.bytesMax) }
	} else {
		k.fetch = func() ([]byte, error) { return readBounded(place, k.bytesMax) }
	}
	return k
}

// suits reports whether the set can go on under another configuration.
func (k *keySet) suits(cfg *Config) bool {
	return k.interval == cfg.RefreshInterval && k.limit == cfg.FetchLimit && k.bytesMax == cfg.JWKSBytesMax
}

// changed reports whether a file has changed since it was last read, and is the same
// as at the last look.
func (k *keySet) changed() bool {
	before := k.seen
	k.seen = signature(k.place)
	return k.seen == before && k.seen != k.tried
}

func fetchURL(client *http.Client, url string, bytesMax int) ([]byte, error) {
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(bytesMax)+1))
	if err == nil && len(body) > bytesMax {
		err = errors.New("it is over identity.jwks_bytes_max")
	}
	return body, err
}

// refresh fetches the keys once. Only a success changes them.
func (k *keySet) refresh(now time.Time) error {
	if !isURL(k.place) {
		k.tried = signature(k.place)
	}
	body, err := k.fetch()
	var set *jwks
	if err == nil {
		set, err = parseJWKS(body)
	}
	if err == nil {
		k.current.Store(set)
		k.fetched.Store(now.Unix())
		k.successes.Add(1)
	} else {
		err = fmt.Errorf("the issuer's keys at %s: %w", k.place, err)
		k.failures.Add(1)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending = false
	close(k.updated)
	k.updated = make(chan struct{})
	return err
}

// run keeps the keys of a URL up to date until ctx ends.
func (k *keySet) run(ctx context.Context) {
	failed := time.Duration(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.wake:
		}
		wait := k.interval
		if err := k.refresh(time.Now()); err != nil {
			failed = min(max(2*failed, fetchWaitMin), fetchWaitMax)
			wait = min(failed, k.interval)
			k.log.Warn("cannot fetch the keys of an issuer: its last ones go on holding", "error", err, "again_in", wait, "have_keys", k.current.Load() != nil)
		} else {
			failed = 0
		}
		timer.Reset(wait)
	}
}

// find is the key for a token. A kid that is unknown may be new: it causes one fetch
// a minute, for which the request waits.
func (k *keySet) find(kid, alg string) (*publicKey, *Refusal) {
	set := k.current.Load()
	if set != nil {
		if found := set.find(kid, alg); found != nil {
			return found, nil
		}
	}
	if updated := k.ask(time.Now()); updated != nil {
		select {
		case <-updated:
		case <-time.After(k.limit):
		}
		if set = k.current.Load(); set != nil {
			if found := set.find(kid, alg); found != nil {
				return found, nil
			}
		}
	}
	if set == nil {
		return nil, errIssuerDown
	}
	return nil, errUnknownSign
}

// ask asks for a fetch, and returns what is closed after it; nil where none is
// due, because the last one that was asked for is over and less than a minute old.
// A file is not asked for: it is looked at all the time.
func (k *keySet) ask(now time.Time) <-chan struct{} {
	if !isURL(k.place) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pending {
		return k.updated
	}
	if !k.asked.IsZero() && now.Sub(k.asked) < unknownWait {
		return nil
	}
	k.asked, k.pending = now, true
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return k.updated
}
