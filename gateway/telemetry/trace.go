package telemetry

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/forebay-io/forebay/internal/wire"
)

// traceStateBytesMax bounds the tracestate that is passed on; W3C asks for at least
// 512.
const traceStateBytesMax = 512

// Trace joins the caller's trace, or starts a new one if traceparent is absent or
// malformed (W3C Trace Context level 1). It returns our own context with a new span
// id, and the caller's span id, which is zero for a new root.
func Trace(traceparent, tracestate string) (t wire.TraceContext, parent [8]byte) {
	if !parseTraceparent(traceparent, &t, &parent) {
		t, parent = wire.TraceContext{}, [8]byte{}
		fillRandom(t.TraceID[:])
	} else if len(tracestate) <= traceStateBytesMax && printable(tracestate) {
		t.State = tracestate
	}
	fillRandom(t.SpanID[:])
	return t, parent
}

// parseTraceparent reads version-traceid-parentid-flags in lower-case hex. A version
// above 00 may have more fields after a dash; version ff is forbidden.
func parseTraceparent(s string, t *wire.TraceContext, parent *[8]byte) bool {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	var version, flags [1]byte
	if !unhex(version[:], s[0:2]) || !unhex(t.TraceID[:], s[3:35]) || !unhex(parent[:], s[36:52]) || !unhex(flags[:], s[53:55]) {
		return false
	}
	t.Flags = flags[0]
	if version[0] == 0xff || t.TraceID == [16]byte{} || *parent == [8]byte{} {
		return false
	}
	return len(s) == 55 || version[0] > 0 && s[55] == '-'
}

func unhex(dst []byte, s string) bool {
	for i := range dst {
		hi, lo := nibble(s[2*i]), nibble(s[2*i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

func nibble(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// fillRandom fills b, whose length is a multiple of 8, and never with zeros alone.
func fillRandom(b []byte) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], rand.Uint64()|1)
	}
}
