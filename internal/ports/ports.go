// Package ports finds TCP ports for servers that tests and benchmarks start as processes
// of their own.
//
// Goal: a port that Free has returned stays free until its server binds it, and between
// the server's end and its next start, whatever else the machine does meanwhile. A
// listener on port 0 that is closed again cannot promise that: the system may give the
// same port to the next connection or listener, of any process.
//
// Non-goals: ports for listeners of the same process, which listen on port 0 and stay
// open; other addresses than 127.0.0.1.
//
// Ownership: the process owns the ports that Free has returned until it ends.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that Free returns lie below those that the systems of today give to
// connections and to listeners on port 0 (from 32768 on Linux, from 49152 elsewhere),
// and so do the ports 10000 above them, where the servers of a Redis cluster talk.
const (
	first = 10000
	end   = 20000
)

// claims are held so that no other process that uses this package gets the same ports:
// a UDP port is not the TCP port of the same number, and the system frees it when the
// process ends, however that happens.
var claims struct {
	sync.Mutex
	held []net.PacketConn
}

// Free returns n TCP ports of 127.0.0.1, and an error when so many are not to be had.
// No later call in any process gets one of them while this process lives.
func Free(n int) ([]string, error) {
	claims.Lock()
	defer claims.Unlock()
	var free []string
	var taken []net.PacketConn
	for _, offset := range rand.Perm(end - first) {
		if len(free) == n {
			break
		}
		port := first + offset
		claim, err := net.ListenPacket("udp", address(port))
		if err != nil {
			continue // another process's, or our own
		}
		if errors.Join(probe(port), probe(port+10000)) != nil {
			claim.Close()
			continue
		}
		taken = append(taken, claim)
		free = append(free, strconv.Itoa(port))
	}
	if len(free) < n {
		for _, claim := range taken {
			claim.Close()
		}
		return nil, fmt.Errorf("%d of %d ports are free between %d and %d on 127.0.0.1", len(free), n, first, end)
	}
	claims.held = append(claims.held, taken...)
	return free, nil
}

func probe(port int) error {
	ln, err := net.Listen("tcp", address(port))
	if err != nil {
		return err
	}
	return ln.Close()
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// MustAddress returns 127.0.0.1 with one port of Free, and panics when none is free.
func MustAddress() string {
	free, err := Free(1)
	if err != nil {
		panic(err)
	}
	return "127.0.0.1:" + free[0]
}
