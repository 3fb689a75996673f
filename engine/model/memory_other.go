//go:build !unix

package model

// memory hands out zeroed buffers from the Go heap.
type memory struct{}

func (m *memory) bytes(n int) ([]byte, error)       { return make([]byte, n), nil }
func (m *memory) float32s(n int) ([]float32, error) { return make([]float32, n), nil }
func (m *memory) free() error                       { return nil }
