package sample

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/forebay-io/forebay/internal/wire"
)

// dry finds which tokens would go on with a repetition of a sequence (wire.DRY).
type dry struct {
	options  *wire.DRY
	spell    func(id int32) []byte
	breakers [][]byte
	longest  int     // breaker, in bytes
	tokens   []int32 // of prompt and answer
	after    int     // the token after the last one in which a breaker ends
	tail     []byte  // of the text, shorter than the longest breaker

	// Scratch memory of one row.
	same   []int32 // how far two sequences are equal
	longer []repetition
}

// repetition is a token that makes a repeated sequence of that many tokens longer.
type repetition struct{ id, length int32 }

func newDRY(o *wire.DRY) *dry {
	d := &dry{options: o}
	for _, text := range o.Breakers {
		d.breakers = append(d.breakers, []byte(text))
		d.longest = max(d.longest, len(text))
	}
	return d
}

// add takes the next token of prompt or answer.
func (d *dry) add(id int32) {
	d.tokens = append(d.tokens, id)
	if d.longest == 0 || d.spell == nil {
		return
	}
	before := len(d.tail)
	d.tail = append(d.tail, d.spell(id)...)
	for _, b := range d.breakers {
		if bytes.Contains(d.tail[max(0, before-len(b)+1):], b) { // one that ends within the new bytes
			d.after = len(d.tokens)
			break
		}
	}
	d.tail = slices.Delete(d.tail, 0, max(0, len(d.tail)-d.longest+1))
}

// penalize takes the penalties from logits.
func (d *dry) penalize(logits []float32) {
	o := d.options
	for i, r := range d.repetitions() {
		if i > 0 && d.longer[i-1].id == r.id || int(r.id) >= len(logits) || r.id < 0 { // the longest counts
			continue
		}
		penalty := float64(o.Multiplier) * math.Pow(float64(o.Base), float64(int(r.length)-o.Length))
		logits[r.id] -= float32(min(penalty, dryMost))
	}
}

// dryMost keeps logits finite.
const dryMost = 1e30

// repetitions are by token, the longest of each first.
func (d *dry) repetitions() []repetition {
	o, seen := d.options, d.tokens
	if o.Last > 0 {
		seen = seen[max(0, len(seen)-o.Last):]
	}
	most := min(len(seen), len(d.tokens)-d.after)
	d.longer = d.longer[:0]
	if most < max(1, o.Length) {
		return nil
	}
	d.measure(seen)
	for back := 1; back < len(seen); back++ {
		if length := min(int(d.same[back]), most); length >= max(1, o.Length) {
			d.longer = append(d.longer, repetition{seen[len(seen)-back], int32(length)})
		}
	}
	slices.SortFunc(d.longer, func(a, b repetition) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(b.length, a.length)) })
	return d.longer
}

// measure sets same[back] to how many tokens are equal from the end and from back tokens
// before the end, going to the front: the Z function of the tokens in reverse, in linear time.
func (d *dry) measure(seen []int32) {
	n := len(seen)
	at := func(i int) int32 { return seen[n-1-i] }
	d.same = slices.Grow(d.same, max(0, n-len(d.same)))[:n]
	d.same[0] = int32(n)
	left, right := 0, 0 // the stretch known to be equal that reaches furthest
	for i := 1; i < n; i++ {
		z := 0
		if i < right {
			z = min(right-i, int(d.same[i-left]))
		}
		for i+z < n && at(z) == at(i+z) {
			z++
		}
		if i+z > right {
			left, right = i, i+z
		}
		d.same[i] = int32(z)
	}
}
