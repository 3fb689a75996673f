package admission

import (
	"math"
	"time"
)

// asked is what a tenant has asked for recently in a class: requests that were
// refused count too. It is engine time for the prefill of short requests.
type asked struct {
	work  meter
	sizes sizes
}

// The time constants of what a tenant asks for, and of what all do together: a single
// large request is not to put a quiet tenant over its share, while an overload has to
// be seen soon.
const (
	askedMemory     = 60 * time.Second
	allAskedMemory  = 10 * time.Second
	lastAskedMemory = 2500 * time.Millisecond
)

// rate is the engine time that is asked for in a unit of time.
func (a *asked) rate(now time.Duration) float64 {
	return a.work.valueOver(now, askedMemory) / float64(askedMemory)
}

// sizes is a histogram of work by the size of requests, which fades.
type sizes struct {
	bins         [sizeBins]float64
	total, count float64
}

const (
	sizeBins   = 112 // 28 octaves from sizeLeast on
	sizeOctave = 4   // bins in an octave
	sizeLeast  = float64(time.Microsecond)
	sizeFade   = 0.997 // of what there was, for each request
)

func sizeBin(size time.Duration) int {
	return int(min(max(sizeOctave*math.Log2(max(1, float64(size))/sizeLeast), 0), sizeBins-1))
}

func (z *sizes) observe(size time.Duration) {
	for i := range z.bins {
		z.bins[i] *= sizeFade
	}
	z.bins[sizeBin(size)] += float64(size)
	z.total = z.total*sizeFade + float64(size)
	z.count = z.count*sizeFade + 1
}

// mean is the mean size of a request.
func (z *sizes) mean() time.Duration { return time.Duration(z.total / max(1, z.count)) }

// rank is the share of the work that is in smaller requests. Requests of one bin
// are alike: tie, from 0 to 1, puts one among them.
func (z *sizes) rank(size time.Duration, tie float64) float64 {
	if z.total == 0 {
		return 0
	}
	at, below := sizeBin(size), 0.
	for _, work := range z.bins[:at] {
		below += work
	}
	return (below + tie*z.bins[at]) / z.total
}

// tieOf spreads the requests that follow one another evenly over 0 to 1, by
// multiples of the golden ratio. So of requests that are all alike an even part is
// let in.
func tieOf(draw uint64) float64 {
	_, tie := math.Modf(float64(draw) * math.Phi)
	return tie
}

// asks is what all tenants of the level ask for, in engine time in a unit of time. While
// a lasting overload is young the last seconds count if they ask for more, since the
// mean over longer is too small.
func (lv *level) asks(now time.Duration) float64 {
	asks := lv.allAsked.valueOver(now, allAskedMemory) / float64(allAskedMemory)
	if lv.standing.on && now-lv.standing.longer < allAskedMemory {
		asks = max(asks, lv.lastAsked.valueOver(now, lastAskedMemory)/float64(lastAskedMemory))
	}
	return asks
}

// partOf is the part of what l's tenant asks for that can be served if a share of
// what all ask for can be, by max-min fairness: who asks for no more than its fair
// share gets all of it, and the others the same, for their weight.
func (lv *level) partOf(l *line, share float64, now time.Duration) float64 {
	if share >= 1 {
		return 1
	}
	asks, weights := 0., 0.
	for _, o := range lv.asking {
		o.asks, o.overShare = o.asked.rate(now), true
		asks += o.asks
		weights += o.tenant.weight
	}
	if l.asks == 0 {
		return 1
	}
	left := share * asks
	for fair, again := 0., true; again; {
		fair, again = max(0, left)/weights, false
		for _, o := range lv.asking {
			if o.overShare && o.asks <= fair*o.tenant.weight {
				o.overShare, again = false, true
				left -= o.asks
				weights -= o.tenant.weight
			}
		}
		if !again && l.overShare {
			return min(1, fair*l.tenant.weight/l.asks)
		}
	}
	return 1
}

// bookAsked books that l's tenant asks for so much.
func (lv *level) bookAsked(l *line, size, now time.Duration) {
	l.asked.work.addOver(float64(size), now, askedMemory)
	lv.allAsked.addOver(float64(size), now, allAskedMemory)
	lv.lastAsked.addOver(float64(size), now, lastAskedMemory)
}

// noteAsked books that e asks for its prefill.
func (s *Scheduler) noteAsked(e *Entry, l *line) {
	lv := &s.levels[e.class.level]
	if !l.isAsking {
		l.isAsking = true
		lv.asking = append(lv.asking, l)
	}
	lv.bookAsked(l, e.prefill, s.now)
	l.asked.sizes.observe(e.size)
	if s.now-lv.sweptAt < askedMemory {
		return
	}
	lv.sweptAt = s.now
	kept := lv.asking[:0]
	for _, o := range lv.asking {
		if o.isAsking = o.asked.rate(s.now) > 1e-5; o.isAsking {
			kept = append(kept, o)
		}
	}
	clear(lv.asking[len(kept):])
	lv.asking = kept
}
