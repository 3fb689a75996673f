package spans

import "encoding/binary"

// Kind is a span's kind, of those that OpenTelemetry knows.
type Kind uint8

const (
	Internal Kind = iota
	Server
	Client
)

// Tree is one trace as far as this process knows it.
type Tree struct {
	TraceID [16]byte
	// State is the caller's tracestate, "" for none.
	State string
	// Flags are the W3C trace flags, as they came and as they are sent.
	Flags byte
	// Spans begin with the root, whose Parent is a span of the caller, or zero.
	Spans []Span
}

// Span is one span. Begin and End are in nanoseconds of CLOCK_MONOTONIC; an
// End before Begin counts as Begin.
type Span struct {
	Name       string
	Kind       Kind
	ID, Parent [8]byte
	Begin, End int64
	// Attributes have the important ones first: those after the 128th are dropped.
	Attributes []Attribute
	Events     []Event
	Links      []Link
	Failed     bool
	StatusText string // why it failed
}

// Event is an instant within a span.
type Event struct {
	Name       string
	At         int64 // CLOCK_MONOTONIC, in nanoseconds
	Attributes []Attribute
}

// Link points at a span of another trace.
type Link struct {
	TraceID    [16]byte
	SpanID     [8]byte
	Attributes []Attribute
}

// Attribute is a key with one value. Invalid UTF-8 in it is replaced, since one
// such text would make a collector refuse the whole batch.
type Attribute struct {
	Key   string
	value any // string, int64, float64, bool or []string
}

// String is an attribute with a text.
func String(key, v string) Attribute { return Attribute{key, v} }

// Int is an attribute with a whole number.
func Int[N ~int | ~int64 | ~uint64 | ~uint32](key string, v N) Attribute {
	return Attribute{key, int64(v)}
}

// Float is an attribute with a number.
func Float(key string, v float64) Attribute { return Attribute{key, v} }

// Bool is an attribute that is true or false.
func Bool(key string, v bool) Attribute { return Attribute{key, v} }

// Strings is an attribute with a list of texts.
func Strings(key string, v []string) Attribute { return Attribute{key, v} }

// Value is the attribute's string, int64, float64, bool or []string.
func (a Attribute) Value() any { return a.value }

// The roles of a request's spans, from which their ids follow. Sibling spans
// of one role count up from it.
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

	rolePreempted = 1 << 10
	roleStep      = 2 << 10
	roleKernel    = 3 << 10
	roleMember    = 4 << 10
)

// CallID is the id of the span of a request's call to an engine: what a
// sidecar beside this one is told as the parent. It follows from the id of the
// request's own span, so that nobody needs to carry it.
func CallID(request [8]byte) [8]byte { return childID(request, roleCall) }

// childID gives each role under a parent an id of its own, never zero.
func childID(parent [8]byte, role uint64) (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], max(1, mix(binary.BigEndian.Uint64(parent[:])+role*0x9e3779b97f4a7c15)))
	return id
}

// stepLink names the span of a step. All requests of a step must agree on it
// without asking each other, so it follows from the run of the engine and the
// step's number.
func stepLink(run, step uint64) (l Link) {
	high := mix(run ^ mix(step))
	low := mix(high ^ step)
	binary.BigEndian.PutUint64(l.TraceID[:], high)
	binary.BigEndian.PutUint64(l.TraceID[8:], max(1, low))
	binary.BigEndian.PutUint64(l.SpanID[:], max(1, mix(low+1)))
	return l
}

// mix is the finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), a
// bijection whose every output bit depends on every input bit.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
