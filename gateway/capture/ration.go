package capture

import (
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// ration says how many requests are kept with all that is known of them: by
// class, and within it by tenant, so that one who fails all the time does not
// hide the others. It is not for several goroutines at once.
type ration struct {
	rate, burst float64
	every       int

	classes map[string]*classRation
	number  uint64 // requests that ran
}

type classRation struct {
	bucket
	tenants          map[string]*bucket
	wall, firstToken digest
	last             [ReasonCount][causeCount]int64 // when such a request was last kept or dropped
}

// bucket holds tokens; a new one is full.
type bucket struct {
	used float64
	at   int64
}

// tenantsMax bounds the tenants of a class that are told apart at a time, and
// classesMax the classes; both come from the configuration.
const (
	tenantsMax = 1024
	classesMax = 256
)

// left refills the bucket up to now.
func (b *bucket) left(now int64, rate, burst float64) float64 {
	b.used = max(0, b.used-rate*time.Duration(now-b.at).Seconds())
	b.at = now
	return burst - b.used
}

// Drop is why a request was not kept though there was a reason.
type Drop uint8

const (
	DropClass  Drop = iota // its class had its part
	DropTenant             // its tenant had its part of that
	DropRepeat             // the same, of another like it, a moment before
	DropBusy               // too many waited to be looked at
	DropCount
)

var dropNames = [...]string{"class", "tenant", "repeat", "busy"}

// String returns the stable name.
func (d Drop) String() string { return dropNames[d] }

// repeatWithin is how long a request beyond the budgets is a repetition.
const repeatWithin = int64(time.Second)

// class finds the class's part, or makes it.
func (n *ration) class(name string) *classRation {
	c := n.classes[name]
	if c == nil {
		if len(n.classes) >= classesMax {
			name = ""
			if c = n.classes[name]; c != nil {
				return c
			}
		}
		c = &classRation{tenants: map[string]*bucket{}}
		n.classes[name] = c
	}
	return c
}

// usual counts r, if it ran, and says what was usual before it.
func (n *ration) usual(c *classRation, r *telemetry.Record) (u Usual) {
	if r.Dispatched == 0 || r.Outcome != telemetry.OK {
		return u
	}
	u.Wall = c.wall.add(r.Finished - r.Arrived)
	if d := r.FirstTokenDelay(); d > 0 {
		u.FirstToken = c.firstToken.add(d)
	}
	return u
}

// take takes a place for one request of the tenant, or says why there is none.
func (n *ration) take(c *classRation, tenant string, why Reasons, cause Cause, now int64) (Drop, bool) {
	last := &c.last[why.first()][cause]
	repeated := *last != 0 && now-*last < repeatWithin
	*last = now
	t := c.tenants[tenant]
	if t == nil {
		if len(c.tenants) >= tenantsMax {
			clear(c.tenants) // they all begin anew
		}
		t = new(bucket)
		c.tenants[tenant] = t
	}
	drop := DropTenant
	switch ofClass, ofTenant := c.left(now, n.rate, n.burst), t.left(now, n.rate/2, n.burst/2); {
	case ofClass >= 1 && ofTenant >= 1:
		c.used++
		t.used++
		return 0, true
	case ofClass < 1:
		drop = DropClass
	}
	if repeated {
		drop = DropRepeat
	}
	return drop, false
}
