package capture

import (
	"math/bits"
	"time"
)

// digest is a histogram of durations with eight buckets for each power of two.
// It has two halves, the current one and the one before, so that it forgets.
type digest struct {
	now, before [digestBuckets]uint32
	count, kept uint32 // in now and before
	tail        int64  // the 99.9 % quantile at the last look, 0 for unknown
}

const (
	digestParts   = 8
	digestBuckets = 40 * digestParts // from microseconds to days
	digestHalf    = 8192             // durations in a half
	digestLook    = 256              // between two looks for the quantile
	digestLeast   = 2000             // durations before the quantile means something
)

func bucketOf(ns int64) int {
	us := uint64(max(0, ns) / 1000)
	if us < digestParts {
		return int(us)
	}
	shift := bits.Len64(us) - 4 // leaves 8..15
	return min(digestBuckets-1, shift*digestParts+int(us>>shift))
}

// bucketEnd is where the next bucket begins, in nanoseconds.
func bucketEnd(b int) int64 {
	if b < 2*digestParts {
		return int64(b+1) * 1000
	}
	shift := b/digestParts - 1
	return int64(b%digestParts+digestParts+1) << shift * 1000
}

// add counts ns and returns the tail before it.
func (d *digest) add(ns int64) (tail time.Duration) {
	tail = time.Duration(d.tail)
	d.now[bucketOf(ns)]++
	d.count++
	if d.count%digestLook == 0 {
		d.look()
	}
	if d.count == digestHalf {
		d.before, d.kept = d.now, d.count
		d.now, d.count = [digestBuckets]uint32{}, 0
	}
	return tail
}

// look finds the quantile.
func (d *digest) look() {
	all := d.count + d.kept
	if all < digestLeast {
		return
	}
	left := all / 1000
	for b := digestBuckets - 1; b >= 0; b-- {
		n := d.now[b] + d.before[b]
		if n > left {
			d.tail = bucketEnd(b)
			return
		}
		left -= n
	}
}
