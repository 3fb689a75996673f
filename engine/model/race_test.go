//go:build race

package model

// underRace makes tests smaller: the race detector looks for workers that meet, which one
// kernel set shows as well as all, and it slows plain Go by an order of magnitude.
const underRace = true
