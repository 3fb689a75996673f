package shared

import (
	"sync"
	"time"
)

// breaker says whether to ask Redis. Closed, it lets every call through. After a
// number of failures in a row it is open, and after each wait one call may try.
type breaker struct {
	errorsMax int
	wait      time.Duration

	mu      sync.Mutex
	errors  int       // in a row; guarded by mu, as the rest
	until   time.Time // while open: no call before it
	trying  bool      // while open: one call is under way
	changed func(open bool, err error)
}

// result is how a call ended.
type result uint8

const (
	succeeded result = iota
	failed
	neither // it says nothing about Redis: this process ended the call
)

// closed says that every call may be made.
func (b *breaker) closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errors < b.errorsMax
}

// try says whether a call may be made; if so, done must follow.
func (b *breaker) try(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.errors < b.errorsMax {
		return true
	}
	if b.trying || now.Before(b.until) {
		return false
	}
	b.trying = true
	return true
}

// done says how a call ended that try allowed.
func (b *breaker) done(r result, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wasOpen := b.errors >= b.errorsMax
	b.trying = false // whatever the result, or no call would ever try again
	switch r {
	case succeeded:
		b.errors = 0
	case failed:
		b.errors = min(b.errors+1, b.errorsMax)
		b.until = now.Add(b.wait)
	}
	if open := b.errors >= b.errorsMax; open != wasOpen && b.changed != nil {
		b.changed(open, err)
	}
}
