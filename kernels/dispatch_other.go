//go:build purego || !(amd64 || arm64)

package kernels

const purego = true

// vectorSets: only ref is built here.
func vectorSets() []*Set { return nil }
