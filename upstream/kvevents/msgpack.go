package kvevents

import (
	"encoding/binary"
	"errors"
)

// This file reads the part of MessagePack that events are written in. Nothing is
// allocated by a length that only was announced.

var errPack = errors.New("not MessagePack, or cut")

// depthMost bounds how deep values may lie in each other.
const depthMost = 16

// packed is what is left to read. After an error nothing is left, and ok is false.
type packed struct {
	rest []byte
	bad  bool
}

func (p *packed) fail() { p.rest, p.bad = nil, true }

// take returns the next n bytes.
func (p *packed) take(n uint64) []byte {
	if n > uint64(len(p.rest)) {
		p.fail()
		return nil
	}
	b := p.rest[:n]
	p.rest = p.rest[n:]
	return b
}

// number reads a big-endian number of n bytes.
func (p *packed) number(n int) uint64 {
	var raw [8]byte
	copy(raw[8-n:], p.take(uint64(n)))
	return binary.BigEndian.Uint64(raw[:])
}

// Kinds of values.
type kind byte

const (
	kindNone kind = iota // the end, or an error
	kindNil
	kindBool
	kindInt
	kindFloat
	kindText // str or bin
	kindList
	kindMap
	kindOther // ext
)

// head reads the start of a value: its kind, and its length (of a text in bytes, of a list or
// a map in elements) or, of an integer, its 64 bits.
func (p *packed) head() (k kind, n uint64) {
	b := p.take(1)
	if b == nil {
		return kindNone, 0
	}
	c := b[0]
	switch {
	case c <= 0x7f:
		return kindInt, uint64(c)
	case c <= 0x8f:
		return kindMap, uint64(c & 0xf)
	case c <= 0x9f:
		return kindList, uint64(c & 0xf)
	case c <= 0xbf:
		return kindText, uint64(c & 0x1f)
	case c >= 0xe0:
		return kindInt, uint64(int64(int8(c)))
	}
	switch c {
	case 0xc0:
		return kindNil, 0
	case 0xc2, 0xc3:
		return kindBool, uint64(c & 1)
	case 0xc4, 0xc5, 0xc6:
		return kindText, p.number(1 << (c - 0xc4))
	case 0xc7, 0xc8, 0xc9:
		return kindOther, p.number(1<<(c-0xc7)) + 1
	case 0xca, 0xcb:
		return kindFloat, uint64(4) << (c - 0xca)
	case 0xcc, 0xcd, 0xce, 0xcf:
		return kindInt, p.number(1 << (c - 0xcc))
	case 0xd0:
		return kindInt, uint64(int64(int8(p.number(1))))
	case 0xd1:
		return kindInt, uint64(int64(int16(p.number(2))))
	case 0xd2:
		return kindInt, uint64(int64(int32(p.number(4))))
	case 0xd3:
		return kindInt, p.number(8)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8:
		return kindOther, uint64(1)<<(c-0xd4) + 1
	case 0xd9, 0xda, 0xdb:
		return kindText, p.number(1 << (c - 0xd9))
	case 0xdc, 0xdd:
		return kindList, p.number(2 << (c - 0xdc))
	case 0xde, 0xdf:
		return kindMap, p.number(2 << (c - 0xde))
	}
	p.fail() // 0xc1 is not used
	return kindNone, 0
}

// skip reads past a value.
func (p *packed) skip() { p.skipDeep(depthMost) }

func (p *packed) skipDeep(depth int) {
	k, n := p.head()
	switch k {
	case kindText, kindFloat, kindOther:
		p.take(n)
	case kindList, kindMap:
		if depth == 0 {
			p.fail()
			return
		}
		if k == kindMap {
			n *= 2
		}
		for ; n > 0 && !p.bad; n-- {
			p.skipDeep(depth - 1)
		}
	}
}

// value reads past a value and returns its bytes.
func (p *packed) value() packed {
	start := p.rest
	p.skip()
	return packed{rest: start[:len(start)-len(p.rest)], bad: p.bad}
}

// list reads the start of a list and returns how many elements it has; ok is false for
// another value.
func (p *packed) list() (n int, ok bool) {
	k, length := p.head()
	if k != kindList || length > uint64(len(p.rest)) { // each element has at least a byte
		return 0, false
	}
	return int(length), true
}

// text reads a string, or bytes; ok is false for another value.
func (p *packed) text() (b []byte, ok bool) {
	k, n := p.head()
	if k != kindText {
		return nil, false
	}
	b = p.take(n)
	return b, !p.bad
}

// integer reads one; ok is false for another value.
func (p *packed) integer() (bits uint64, ok bool) {
	k, n := p.head()
	return n, k == kindInt && !p.bad
}
