package spanstest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// New tries other ports on this error.
func TestTakenPortIsReportedAsThat(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().String()
	free, _ := freeAddresses(t)
	for _, addresses := range [][2]string{{taken, free}, {free, taken}} {
		if _, err := start(t, addresses[0], addresses[1]); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("addresses %v: %v, want %v", addresses, err, syscall.EADDRINUSE)
		}
	}
}
