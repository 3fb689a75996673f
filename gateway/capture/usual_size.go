package capture

import (
	"math/bits"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// usuals say what is usual for requests of one class and about one size. It is not
// safe for concurrent use.
type usuals struct {
	most   int // groups
	groups map[size]*group
}

// size is a class, and the powers of four of the prompt tokens that were not cached
// and of the answer's tokens.
type size struct {
	class          string
	prompt, answer uint8
}

// group is what requests of one size took.
type group struct{ wall, firstToken digest }

// usualLeast is how many requests of a size must be known.
const usualLeast = 20

func sizeOf(r *telemetry.Record) size {
	power := func(n int) uint8 { return uint8((bits.Len(uint(max(0, n))) + 1) / 2) }
	return size{r.Class, power(r.PromptTokens - r.CachedTokens), power(r.CompletionTokens)}
}

// add counts r, if it was answered. Sizes beyond the most are not known.
func (u *usuals) add(r *telemetry.Record) {
	if r.Dispatched == 0 || r.Outcome != telemetry.OK {
		return
	}
	at := sizeOf(r)
	g := u.groups[at]
	if g == nil {
		if len(u.groups) >= u.most {
			return
		}
		g = new(group)
		u.groups[at] = g
	}
	g.wall.add(r.Finished - r.Arrived)
	g.firstToken.add(r.FirstTokenDelay())
}

// of is what is usual for a request of r's size, nil where that is not known.
func (u *usuals) of(r *telemetry.Record) *UsualView {
	g := u.groups[sizeOf(r)]
	if r.Dispatched == 0 || g == nil || g.wall.count+g.wall.kept < usualLeast {
		return nil
	}
	v := &UsualView{
		Requests: int(g.wall.count + g.wall.kept), WallMS: ms(g.wall.quantile(0.5)), WallMostMS: ms(g.wall.quantile(0.95)), FirstTokenMS: ms(g.firstToken.quantile(0.5)),
	}
	if v.WallMS > 0 {
		v.Ratio = round(ms(r.Finished-r.Arrived) / v.WallMS)
	}
	return v
}

// quantile is a duration that the q-th part of all do not exceed, to an eighth.
func (d *digest) quantile(q float64) int64 {
	want := q * float64(d.count+d.kept)
	for b := range digestBuckets {
		if want -= float64(d.now[b] + d.before[b]); want <= 0 {
			return bucketEnd(b)
		}
	}
	return bucketEnd(digestBuckets - 1)
}

// asUsual tells that the request took no longer than most of its class and size.
func (v *View) asUsual() bool { return v.Usual != nil && v.WallMS <= v.Usual.WallMostMS }

// usualText compares the request with those of its class and size.
func (v *View) usualText() string {
	if v.asUsual() {
		return "It took about as long as is usual for its class and size, " + short(time.Duration(v.Usual.WallMS*1e6))
	}
	if v.Usual != nil {
		return "It missed no goal, but took longer than is usual for its class and size, " + short(time.Duration(v.Usual.WallMS*1e6))
	}
	return "It missed no goal"
}
