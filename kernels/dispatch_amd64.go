//go:build amd64 && !purego

package kernels

func vectorSets() []*Set { return nil }
