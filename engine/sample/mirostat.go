package sample

import (
	"math"
	"slices"
)

// mirostat holds the mean surprise of a choice's tokens near a target (Basu and others, 2021,
// the second version): a bound on the surprise of a token, which each draw moves.
type mirostat struct {
	target, rate, bound float64 // target and bound in bits; rate 0 leaves the bound
}

// cut drops what surprises more than the bound, but for the likeliest token.
func (m *mirostat) cut(list []Candidate) []Candidate {
	sum, best := 0.0, list[0]
	for _, c := range list {
		sum += float64(c.Weight)
		if before(c, best) {
			best = c
		}
	}
	least := sum * math.Exp2(-m.bound)
	return slices.DeleteFunc(list, func(c Candidate) bool { return float64(c.Weight) < least && c != best })
}

// drawn moves the bound by the surprise of the token that was drawn from list.
func (m *mirostat) drawn(list []Candidate, id int32) {
	sum, weight := 0.0, 0.0
	for _, c := range list {
		sum += float64(c.Weight)
		if c.ID == id {
			weight = float64(c.Weight)
		}
	}
	m.bound -= m.rate * (math.Log2(sum/weight) - m.target)
}
