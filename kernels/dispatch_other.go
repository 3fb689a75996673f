//go:build !amd64 || purego

package kernels

const purego = true

// vectorSets: only ref is built here.
func vectorSets() []*Set { return nil }
