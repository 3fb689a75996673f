package capture

import (
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// quota bounds the requests that are kept with their steps: for each class, and
// within it for each tenant, so that a tenant whose requests always fail does not
// hide the others. It is not safe for concurrent use.
type quota struct {
	rate, burst float64
	every       int // one request in this many is a baseline

	classes map[string]*classQuota
	number  uint64 // dispatched requests
}

type classQuota struct {
	bucket
	tenants          map[string]*bucket
	wall, firstToken digest
	last             [reasonCount][causeCount]int64 // when such a request last asked for a place
}

// bucket is a token bucket; a new one is full.
type bucket struct {
	used float64
	at   int64 // of the last refill
}

// tenantsMax bounds the tenants in the table of a class, and classesMax the
// classes; both come from the configuration.
const (
	tenantsMax = 1024
	classesMax = 256
)

// left refills the bucket up to now and returns what is in it.
func (b *bucket) left(now int64, rate, burst float64) float64 {
	b.used = max(0, b.used-rate*time.Duration(now-b.at).Seconds())
	b.at = now
	return burst - b.used
}

// drop says why a request was not kept although there was a reason.
type drop uint8

const (
	dropClass  drop = iota // the quota of its class was used up
	dropTenant             // the quota of its tenant was
	dropRepeat             // one of these, and a request like it came a moment before
	dropBusy               // too many requests waited to be kept
	dropCount
)

var dropNames = [...]string{"class", "tenant", "repeat", "busy"}

// String returns the stable name.
func (d drop) String() string { return dropNames[d] }

// repeatWithin is how soon after another a request beyond the quota is a repetition.
const repeatWithin = int64(time.Second)

// class finds the quota of a class, or makes it. Classes beyond classesMax share one.
func (n *quota) class(name string) *classQuota {
	c := n.classes[name]
	if c == nil && len(n.classes) >= classesMax {
		name = ""
		c = n.classes[name]
	}
	if c == nil {
		c = &classQuota{tenants: map[string]*bucket{}}
		n.classes[name] = c
	}
	return c
}

// usual counts r if it was answered, and returns what was usual before it.
func (n *quota) usual(c *classQuota, r *telemetry.Record) (u tails) {
	if r.Dispatched == 0 || r.Outcome != telemetry.OK {
		return u
	}
	u.wall = c.wall.add(r.Finished - r.Arrived)
	if d := r.FirstTokenDelay(); d > 0 {
		u.firstToken = c.firstToken.add(d)
	}
	return u
}

// take takes a place for one request of the tenant, or says why there is none.
func (n *quota) take(c *classQuota, tenant string, why reasons, about cause, now int64) (drop, bool) {
	last := &c.last[why.first()][about]
	repeated := *last != 0 && now-*last < repeatWithin
	*last = now
	t := c.tenants[tenant]
	if t == nil {
		if len(c.tenants) >= tenantsMax {
			clear(c.tenants) // all of them begin again
		}
		t = new(bucket)
		c.tenants[tenant] = t
	}
	ofClass, ofTenant := c.left(now, n.rate, n.burst), t.left(now, n.rate/2, n.burst/2)
	switch {
	case ofClass >= 1 && ofTenant >= 1:
		c.used++
		t.used++
		return 0, true
	case repeated:
		return dropRepeat, false
	case ofClass < 1:
		return dropClass, false
	}
	return dropTenant, false
}
