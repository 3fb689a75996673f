//go:build !race

package kerneltest

const underRace = false
