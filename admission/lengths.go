package admission

import (
	"math"
	"math/bits"
)

// lengths predicts how many tokens an answer will have, from the answers seen:
// a tree of histograms, from all requests down to those of one tenant with one
// system prompt and one size of prompt. Each level leans on the one above it
// as far as its own experience is short:
//
//	p(level) = (n·own + lean·p(above)) / (n + lean)
//
// A tenant's own levels take part in its own predictions alone, so nobody can
// spoil another's. Memory is bounded: the node unused for longest gives way.
type lengths struct {
	nodes []node
	index map[uint64]int32
	hand  int // of the clock that finds who gives way
	max   int
	pairs pairs
}

const (
	binsPerOctave = 4
	lengthBins    = 72 // up to 2^18 tokens
	lengthLevels  = 5
	lean          = 15
	// fade is how much an observation leaves of the earlier ones.
	fade = 0.998
)

type node struct {
	key    uint64
	count  float32 // observations, faded
	bins   [lengthBins]float32
	recent bool
}

// Histogram is a distribution of answer lengths in quarter octaves.
type histogram [lengthBins]float32

func newLengths(nodesMax int) *lengths {
	return &lengths{index: make(map[uint64]int32), max: nodesMax}
}

// lengthBin is the bin of so many tokens: bin 0 holds 1 and less.
func lengthBin(tokens int) int {
	if tokens <= 1 {
		return 0
	}
	return min(lengthBins-1, int(binsPerOctave*math.Log2(float64(tokens))))
}

// binTokens is the middle of a bin.
func binTokens(bin int) float64 { return binMiddles[bin] }

var binMiddles = func() (m [lengthBins]float64) {
	for i := range m {
		m[i] = math.Exp2((float64(i) + 0.5) / binsPerOctave)
	}
	return m
}()

// keys are the names of a request's nodes, the widest first.
func (w *Demand) lengthKeys() (keys [lengthLevels]uint64) {
	const widest = 0x9e3779b97f4a7c15
	keys[0] = widest
	keys[1] = mixText(keys[0], w.Route)
	keys[2] = mixText(keys[1], w.Tenant)
	keys[3] = keys[2]
	if len(w.Blocks) > 0 {
		keys[3] = mix(keys[2], w.Blocks[0])
	}
	keys[4] = mix(keys[3], uint64(bits.Len(uint(w.PromptTokens)))+1)
	return keys
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

func mixText(a uint64, s string) uint64 {
	for i := range len(s) {
		a = mix(a, uint64(s[i])+1)
	}
	return mix(a, uint64(len(s)))
}

// at is the node of key, made where there is none.
func (l *lengths) at(key uint64) *node {
	if i, ok := l.index[key]; ok {
		l.nodes[i].recent = true
		return &l.nodes[i]
	}
	if len(l.nodes) < l.max {
		l.nodes = append(l.nodes, node{key: key, recent: true})
		l.index[key] = int32(len(l.nodes) - 1)
		return &l.nodes[len(l.nodes)-1]
	}
	for l.nodes[l.hand].recent {
		l.nodes[l.hand].recent = false
		l.hand = (l.hand + 1) % len(l.nodes)
	}
	n := &l.nodes[l.hand]
	delete(l.index, n.key)
	*n = node{key: key, recent: true}
	l.index[key] = int32(l.hand)
	l.hand = (l.hand + 1) % len(l.nodes)
	return n
}

// observe learns that an answer of each of so many sequences had tokens tokens
// when it ended; one that was cut might have been longer.
func (l *lengths) observe(w *Demand, tokens int, whole bool) {
	if tokens < 1 {
		return
	}
	var seen histogram
	if whole {
		seen[lengthBin(tokens)] = 1
	} else {
		seen = l.distribution(w)
		seen.condition(tokens)
	}
	for _, key := range w.lengthKeys() {
		n := l.at(key)
		n.count = n.count*fade + 1
		for i := range n.bins {
			n.bins[i] = n.bins[i]*fade + seen[i]
		}
	}
}

// distribution is what is expected of a request, before anything is known of
// its answer. It adds up to 1.
func (l *lengths) distribution(w *Demand) (p histogram) {
	// Who knows nothing takes every octave up to 1,024 tokens to be as likely.
	const knownNothing = 10 * binsPerOctave
	for i := range knownNothing {
		p[i] = 1.0 / knownNothing
	}
	previous := uint64(0)
	for _, key := range w.lengthKeys() {
		i, ok := l.index[key]
		if !ok || key == previous {
			continue
		}
		previous = key
		n := &l.nodes[i]
		n.recent = true
		scale := 1 / (n.count + lean)
		for j := range p {
			p[j] = (n.bins[j] + lean*p[j]) * scale
		}
	}
	return p
}

// condition makes p what is left once the answer has had tokens tokens.
func (p *histogram) condition(tokens int) {
	from, sum := lengthBin(tokens), float32(0)
	for i := range p {
		if i < from || i == from && binTokens(i) < float64(tokens) && from < lengthBins-1 {
			p[i] = 0
		}
		sum += p[i]
	}
	if sum < 1e-6 { // longer than anything seen: a little longer still
		*p = histogram{}
		p[min(lengthBins-1, from+1)] = 1
		return
	}
	for i := range p {
		p[i] /= sum
	}
}

// mean is the expected length where none is over most.
func (p *histogram) mean(most int) float64 {
	sum := 0.0
	for i, x := range p {
		sum += float64(x) * min(binTokens(i), float64(most))
	}
	return min(sum, float64(most))
}

// quantile is the length that a share q of the answers does not pass, at most most.
func (p *histogram) quantile(q float64, most int) int {
	sum := 0.0
	for i, x := range p {
		if sum += float64(x); sum >= q {
			return min(most, int(math.Ceil(math.Exp2(float64(i+1)/binsPerOctave))))
		}
	}
	return most
}

// pairs counts how often of two answers the one that was expected to be longer
// was, each answer beside the one before it.
type pairs struct {
	expected, actual float64
	right, all       faded
	seen, covered    faded // answers, and those within their 90 % quantile
	reserved, used   faded // tokens
}

// faded is a sum that fades with every observation.
type faded float64

func (c *faded) add(x float64) { *c = *c*0.999 + faded(x) }

func (p *pairs) observe(expected float64, q90, actual int) {
	bit := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	a := float64(actual)
	if p.actual > 0 && a != p.actual && expected != p.expected {
		p.right.add(bit((a > p.actual) == (expected > p.expected)))
		p.all.add(1)
	}
	p.expected, p.actual = expected, a
	p.seen.add(1)
	p.covered.add(bit(actual <= q90))
	p.reserved.add(float64(q90))
	p.used.add(a)
}
