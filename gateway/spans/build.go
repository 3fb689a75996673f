package spans

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bounds of one span: the SDK's defaults, except for the length of texts.
const (
	attributesMax     = 128
	eventsMax         = 128
	linksMax          = 128
	inner             = 16 // attributes of one event or link
	valueRunesMax     = 4096
	droppedAttributes = "forebay.attributes.dropped"
	scopeName         = "github.com/forebay-io/forebay"
)

// maker makes the SDK's spans out of ours. It is not safe for concurrent use.
type maker struct {
	gateway trace.Tracer
	engine  trace.Tracer
	made    []sdktrace.ReadOnlySpan
	dropped int // attributes, of all spans so far
}

// newMaker makes a maker with a resource for each service.
func newMaker(t *target, version, instance, schemaURL string) *maker {
	m := new(maker)
	m.gateway = m.tracer(t.resource(version, instance, false), version, schemaURL)
	m.engine = m.tracer(t.resource(version, instance, true), version, schemaURL)
	return m
}

// tracer sets every option that the SDK would otherwise take from the environment.
func (m *maker) tracer(res *resource.Resource, version, schemaURL string) trace.Tracer {
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(asFlagged{}), sdktrace.WithIDGenerator(givenIDs{}), sdktrace.WithSpanProcessor(m), sdktrace.WithResource(res),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: valueRunesMax, AttributeCountLimit: attributesMax, EventCountLimit: eventsMax, LinkCountLimit: linksMax,
			AttributePerEventCountLimit: inner, AttributePerLinkCountLimit: inner,
		}))
	return provider.Tracer(scopeName, trace.WithInstrumentationVersion(version), trace.WithSchemaURL(schemaURL))
}

// tree appends the spans of t to made, offset later than CLOCK_MONOTONIC.
func (m *maker) tree(t *Tree, offset int64) {
	state, err := trace.ParseTraceState(t.State)
	if err != nil {
		state = trace.TraceState{} // W3C: a malformed state is dropped, the trace goes on
	}
	for i := range t.Spans {
		m.span(t, &t.Spans[i], given{t.TraceID, t.Spans[i].ID, trace.TraceFlags(t.Flags), state}, i == 0, offset)
	}
}

func (m *maker) span(t *Tree, s *Span, g given, root bool, offset int64) {
	ctx := context.WithValue(context.Background(), givenKey{}, g)
	if s.Parent != [8]byte{} {
		ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: t.TraceID, SpanID: s.Parent, TraceFlags: g.flags, TraceState: g.state,
			Remote: root || s.Kind == Server,
		}))
	}
	links := make([]trace.Link, len(s.Links))
	for i, l := range s.Links {
		links[i] = trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: l.TraceID, SpanID: l.SpanID, TraceFlags: g.flags}),
			Attributes:  convert(l.Attributes),
		}
	}
	tracer := m.gateway
	if s.Engine {
		tracer = m.engine
	}
	_, span := tracer.Start(ctx, valid(s.Name), trace.WithTimestamp(wall(s.Begin, offset)), trace.WithSpanKind(kinds[s.Kind]),
		trace.WithAttributes(m.bounded(s.Attributes)...), trace.WithLinks(links...))
	for _, e := range s.Events {
		span.AddEvent(valid(e.Name), trace.WithTimestamp(wall(e.At, offset)), trace.WithAttributes(convert(e.Attributes)...))
	}
	if s.Failed {
		span.SetStatus(codes.Error, valid(s.StatusText))
	}
	span.End(trace.WithTimestamp(wall(max(s.Begin, s.End), offset)))
}

var kinds = [...]trace.SpanKind{Internal: trace.SpanKindInternal, Server: trace.SpanKindServer, Client: trace.SpanKindClient}

func wall(monotonic, offset int64) time.Time { return time.Unix(0, monotonic+offset) }

// bounded adds an attribute that says how many are too many; the SDK drops these and
// counts them in the span too.
func (m *maker) bounded(list []Attribute) []attribute.KeyValue {
	if len(list) <= attributesMax {
		return convert(list)
	}
	lost := len(list) - attributesMax + 1
	m.dropped += lost
	all := convert(list[:attributesMax-1])
	all = append(all, attribute.Int(droppedAttributes, lost))
	return append(all, convert(list[attributesMax-1:])...)
}

func convert(list []Attribute) []attribute.KeyValue {
	out := make([]attribute.KeyValue, len(list))
	for i, a := range list {
		switch v := a.value.(type) {
		case string:
			out[i] = attribute.String(valid(a.Key), valid(v))
		case int64:
			out[i] = attribute.Int64(valid(a.Key), v)
		case float64:
			out[i] = attribute.Float64(valid(a.Key), v)
		case bool:
			out[i] = attribute.Bool(valid(a.Key), v)
		case []string:
			texts := make([]string, len(v))
			for j := range v {
				texts[j] = valid(v[j])
			}
			out[i] = attribute.StringSlice(valid(a.Key), texts)
		}
	}
	return out
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// OnEnd implements sdktrace.SpanProcessor.
func (m *maker) OnEnd(s sdktrace.ReadOnlySpan) { m.made = append(m.made, s) }

// OnStart implements sdktrace.SpanProcessor.
func (m *maker) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// Shutdown implements sdktrace.SpanProcessor.
func (m *maker) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (m *maker) ForceFlush(context.Context) error { return nil }

// given carries ids and sampling flags in the context to where the SDK asks for them.
// They were made when the request came.
type given struct {
	trace trace.TraceID
	span  trace.SpanID
	flags trace.TraceFlags
	state trace.TraceState
}

type givenKey struct{}

// givenIDs implements sdktrace.IDGenerator.
type givenIDs struct{}

func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	g := ctx.Value(givenKey{}).(given)
	return g.trace, g.span
}

func (givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	return ctx.Value(givenKey{}).(given).span
}

// asFlagged implements sdktrace.Sampler: every span is recorded, and marked as sampled
// if the tree's flag says so.
type asFlagged struct{}

func (asFlagged) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	g := p.ParentContext.Value(givenKey{}).(given)
	r := sdktrace.SamplingResult{Decision: sdktrace.RecordOnly, Tracestate: g.state}
	if g.flags.IsSampled() {
		r.Decision = sdktrace.RecordAndSample
	}
	return r
}

func (asFlagged) Description() string { return "AsFlagged" }
