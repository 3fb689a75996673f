//go:build !amd64 || purego

package kernels

// vectorSets: only ref is built here.
func vectorSets() []*Set { return nil }
