//go:build race

package engine

// underRace makes tests smaller: the race detector slows plain Go arithmetic
// by an order of magnitude.
const underRace = true
