package spans

// Kind is the kind of a span, one of those that OpenTelemetry defines.
type Kind uint8

// The kinds that are used.
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
	// Flags are the W3C trace flags that the spans are sent with.
	Flags byte
	// Spans begin with the root. Its Parent is a span of the caller, or zero.
	Spans []Span
	// Member is nil in a trace of one request alone. Several requests hand in a
	// tree of a shared trace: the Spans of the first of them are sent, and the
	// Member of each later one.
	Member *Span
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
	// Engine says that the engine did it, which is a service of its own.
	Engine bool
}

// Event is an instant within a span.
type Event struct {
	Name       string
	At         int64 // in nanoseconds of CLOCK_MONOTONIC
	Attributes []Attribute
}

// Link points at a span of another trace.
type Link struct {
	TraceID    [16]byte
	SpanID     [8]byte
	Attributes []Attribute
}

// Attribute is a key with one value. Invalid UTF-8 in it is replaced, because a
// collector would refuse the whole batch for it.
type Attribute struct {
	Key   string
	value any // string, int64, float64, bool or []string
}

// String returns an attribute with a text.
func String(key, v string) Attribute { return Attribute{key, v} }

// Int returns an attribute with a whole number.
func Int[N ~int | ~int64 | ~uint64 | ~uint32](key string, v N) Attribute {
	return Attribute{key, int64(v)}
}

// Float returns an attribute with a number.
func Float(key string, v float64) Attribute { return Attribute{key, v} }

// Bool returns an attribute that is true or false.
func Bool(key string, v bool) Attribute { return Attribute{key, v} }

// Strings returns an attribute with a list of texts.
func Strings(key string, v []string) Attribute { return Attribute{key, v} }

// Value is the attribute's string, int64, float64, bool or []string.
func (a Attribute) Value() any { return a.value }
