package admission

import (
	"math"
	"math/bits"
)

// lengths predicts how many tokens an answer will have, from the answers seen:
// a tree of histograms, from all requests down to those of one tenant with one
// system prompt and one size of prompt. A level that has seen n answers counts its
// own histogram n times, and the level above it lean times:
//
//	p(level) = (n·own + lean·p(above)) / (n + lean)
//
// A tenant's levels take part in its own predictions only, so no tenant can spoil
// another's. Memory is bounded: an unused node gives way (the clock algorithm).
type lengths struct {
	nodes []node
	index map[uint64]int32
	hand  int // of the clock that finds the node to replace
	max   int
	score score
}

const (
	binsPerOctave = 4
	lengthBins    = 72 // up to 2^18 tokens
	lengthLevels  = 5
	lean          = 15
	// fade is the factor on earlier observations for each new one.
	fade = 0.998
)

type node struct {
	key    uint64
	count  float32 // of observations, faded
	bins   [lengthBins]float32
	recent bool // used since the clock's hand last passed
}

// histogram is a distribution of answer lengths in quarter octaves.
type histogram [lengthBins]float32

func newLengths(nodesMax int) *lengths {
	return &lengths{index: make(map[uint64]int32), max: nodesMax}
}

// lengthBin is the bin of an answer of some tokens; bin 0 holds 1 and less.
func lengthBin(tokens int) int {
	if tokens <= 1 {
		return 0
	}
	return min(lengthBins-1, int(binsPerOctave*math.Log2(float64(tokens))))
}

// binTokens is the number of tokens in the middle of a bin.
func binTokens(bin int) float64 { return binMiddles[bin] }

var binMiddles = func() (m [lengthBins]float64) {
	for i := range m {
		m[i] = math.Exp2((float64(i) + 0.5) / binsPerOctave)
	}
	return m
}()

// widestKey is the key of all requests' node.
const widestKey = 0x9e3779b97f4a7c15

// lengthKeys are the keys of a request's nodes, the widest first.
func (d *Demand) lengthKeys() (keys [lengthLevels]uint64) {
	keys[0] = widestKey
	keys[1] = mixText(keys[0], d.Route)
	if d.Form != "" {
		keys[1] = mixText(keys[1], d.Form)
	}
	keys[2] = mixText(keys[1], d.Tenant)
	keys[3] = keys[2]
	if len(d.Blocks) > 0 {
		keys[3] = mix(keys[2], d.Blocks[0])
	}
	keys[4] = mix(keys[3], uint64(bits.Len(uint(d.PromptTokens)))+1)
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

// at is the node of key; it makes one where there is none.
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

// observe learns that an answer to d had some tokens when it ended. One that is
// not whole might have been longer, and is spread over what it might have been.
func (l *lengths) observe(d *Demand, tokens int, whole bool) {
	if tokens < 1 {
		return
	}
	var seen histogram
	if whole {
		seen[lengthBin(tokens)] = 1
	} else {
		seen = l.distribution(d)
		seen.condition(tokens)
	}
	for _, key := range d.lengthKeys() {
		n := l.at(key)
		n.count = n.count*fade + 1
		for i := range n.bins {
			n.bins[i] = n.bins[i]*fade + seen[i]
		}
	}
}

// distribution is the expected distribution of the length of an answer to d,
// before anything of the answer is known. It adds up to 1.
func (l *lengths) distribution(d *Demand) (p histogram) {
	// Without observations, every octave up to 1,024 tokens is equally likely.
	const knownNothing = 10 * binsPerOctave
	for i := range knownNothing {
		p[i] = 1.0 / knownNothing
	}
	previous := uint64(0)
	for _, key := range d.lengthKeys() {
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

// doubt is how much of every prediction does not come from answers that were seen, from 1
// down to 0.
func (l *lengths) doubt() float64 {
	i, ok := l.index[widestKey]
	if !ok {
		return 1
	}
	return lean / (float64(l.nodes[i].count) + lean)
}

// condition makes p the distribution of an answer that has some tokens already.
func (p *histogram) condition(tokens int) {
	from, sum := lengthBin(tokens), float32(0)
	for i := range p {
		if i < from || i == from && binTokens(i) < float64(tokens) && from < lengthBins-1 {
			p[i] = 0
		}
		sum += p[i]
	}
	if sum < 1e-6 { // longer than any answer seen: expect it to end in the next bin
		*p = histogram{}
		p[min(lengthBins-1, from+1)] = 1
		return
	}
	for i := range p {
		p[i] /= sum
	}
}

// mean is the expected length of an answer that has most tokens at most.
func (p *histogram) mean(most int) float64 {
	sum := 0.0
	for i, x := range p {
		sum += float64(x) * min(binTokens(i), float64(most))
	}
	return min(sum, float64(most))
}

// quantile is the length that a share q of such answers does not exceed.
func (p *histogram) quantile(q float64, most int) int {
	sum := 0.0
	for i, x := range p {
		if sum += float64(x); sum >= q {
			return min(most, int(math.Ceil(math.Exp2(float64(i+1)/binsPerOctave))))
		}
	}
	return most
}

// score counts how good predictions are: of two answers in a row, how often the
// one that was expected to be longer was longer; how many answers stayed within
// their 90 % quantile; and how far those quantiles were above the lengths.
type score struct {
	expected, actual float64 // of the last answer
	right, all       faded   // pairs
	seen, covered    faded   // answers, and those within their 90 % quantile
	reserved, used   faded   // tokens: quantiles, and lengths
}

// faded is a sum that fades with every observation.
type faded float64

func (f *faded) add(x float64) { *f = *f*0.999 + faded(x) }

func (c *score) observe(expected float64, q90, actual int) {
	bit := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	a := float64(actual)
	if c.actual > 0 && a != c.actual && expected != c.expected {
		c.right.add(bit((a > c.actual) == (expected > c.expected)))
		c.all.add(1)
	}
	c.expected, c.actual = expected, a
	c.seen.add(1)
	c.covered.add(bit(actual <= q90))
	c.reserved.add(float64(q90))
	c.used.add(a)
}
