//go:build race

package calls

const underRace = true
