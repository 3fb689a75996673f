package xds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file lets files go whose time to live has passed. A control plane gives one to what
// must not outlive it, such as a budget that is raised for an hour, and confirms it for as
// long as it means it.

// expire drops the files that have expired, and returns their names.
func (b *book) expire(now time.Time) (names []string) {
	for name, f := range b.files {
		if !f.expires.IsZero() && !now.Before(f.expires) {
			names = append(names, name)
			delete(b.files, name)
		}
	}
	return names
}

// expiry is when the next file expires, zero for never.
func (b *book) expiry() (next time.Time) {
	for _, f := range b.files {
		if !f.expires.IsZero() && (next.IsZero() || f.expires.Before(next)) {
			next = f.expires
		}
	}
	return next
}

// expireAll drops files as they expire, until ctx ends.
func (c *Client) expireAll(ctx context.Context) {
	for {
		wait := time.Hour
		if next := c.expire(time.Now()); !next.IsZero() {
			wait = min(wait, time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-c.noted:
		}
	}
}

// expire makes what is left hold, if a file has expired by now. It returns when the next
// one will, zero for never.
func (c *Client) expire(now time.Time) time.Time {
	c.holding.Lock()
	defer c.holding.Unlock()
	names := c.book.expire(now)
	if len(names) == 0 {
		return c.book.expiry()
	}
	c.accepted = "" // it does not hold as a whole any more, and is to be sent again
	files, err := c.book.policy()
	if err == nil && len(files) == 0 {
		err = errNothingLeft
	}
	if err == nil {
		err = c.take(files)
	}
	if err != nil {
		c.refuse(fmt.Errorf("%s expired, since no control plane confirmed it in time, and what is left does not fit: %w", strings.Join(names, ", "), err))
		return c.book.expiry()
	}
	c.last = files
	c.mu.Lock()
	c.state.Files = len(files)
	c.state.Expired = append(slices.Clone(c.state.Expired), names...) // States share the last one
	c.mu.Unlock()
	c.log.Warn("xds: a part of the policy has expired, since no control plane confirmed it in time", "files", names)
	c.keep()
	return c.book.expiry()
}
