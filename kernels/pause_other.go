//go:build !(amd64 || arm64) || purego

package kernels

func pause() {}
