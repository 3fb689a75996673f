package capture

import (
	"encoding/binary"
	"time"

	"github.com/forebay-io/forebay/gateway/spans"
)

// facts are the attributes of a span. Most methods leave out empty values.
type facts []spans.Attribute

func (f facts) text(key, v string) facts {
	if v == "" {
		return f
	}
	return append(f, spans.String(key, v))
}

func (f facts) texts(key string, v []string) facts {
	if len(v) == 0 {
		return f
	}
	return append(f, spans.Strings(key, v))
}

func (f facts) int(key string, v int) facts { return f.int64(key, int64(v)) }

func (f facts) int64(key string, v int64) facts {
	if v == 0 {
		return f
	}
	return append(f, spans.Int(key, v))
}

func (f facts) float(key string, v float64) facts {
	if v == 0 {
		return f
	}
	return append(f, spans.Float(key, v))
}

func (f facts) flag(key string, v bool) facts {
	if !v {
		return f
	}
	return append(f, spans.Bool(key, v))
}

func (f facts) milliseconds(key string, ns int64) facts { return f.float(key, exactMS(ns)) }

// seconds keeps a zero, because the conventions ask for keys with this unit.
func (f facts) seconds(key string, ns int64) facts {
	return append(f, spans.Float(key, time.Duration(max(0, ns)).Seconds()))
}

// exactMS is ns in milliseconds, not rounded.
func exactMS(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }

// The roles of a request's spans, from which their ids follow. Sibling spans of
// one role count up from it.
const (
	rolePrepare = 1 + iota
	roleRender
	roleTokenize
	roleReserve
	roleQueue
	roleCall
	roleEngine
	roleEngineQueue
	rolePrefill
	roleDecode
	roleEmit
	roleCompile

	roleStep   = 2 << 10
	roleKernel = 3 << 10
	roleMember = 4 << 10
)

// childID gives each role under a parent an id of its own, never zero.
func childID(parent [8]byte, role uint64) (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], max(1, mix(binary.BigEndian.Uint64(parent[:])+role*0x9e3779b97f4a7c15)))
	return id
}

// stepLink points at the span of a step. All requests of a step must know its ids
// without asking each other, so they follow from the engine's run and the step's
// number.
func stepLink(run, step uint64) (l spans.Link) {
	high := mix(run ^ mix(step))
	low := mix(high ^ step)
	binary.BigEndian.PutUint64(l.TraceID[:], high)
	binary.BigEndian.PutUint64(l.TraceID[8:], max(1, low))
	binary.BigEndian.PutUint64(l.SpanID[:], max(1, mix(low+1)))
	return l
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), a
// bijection in which every output bit depends on every input bit.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
