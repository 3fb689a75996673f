//go:build unix

package model

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory hands out zeroed buffers outside the Go heap that become resident page
// by page as they are written.
type memory struct{ mappings [][]byte }

// bytes reserves n bytes. Huge pages are off: they would make a pool
// resident in steps of megabytes for each layer.
func (m *memory) bytes(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of memory: %w", n, err)
	}
	keepSmallPages(b)
	m.mappings = append(m.mappings, b)
	return b, nil
}

// float32s reserves n numbers.
func (m *memory) float32s(n int) ([]float32, error) {
	if n == 0 {
		return nil, nil
	}
	b, err := m.bytes(4 * n)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// free gives everything back. Buffers must not be touched afterwards.
func (m *memory) free() error {
	var first error
	for _, b := range m.mappings {
		if err := unix.Munmap(b); err != nil && first == nil {
			first = err
		}
	}
	m.mappings = nil
	return first
}
