// Package spanstest runs the OTLP receiver of a real OpenTelemetry collector, gRPC and
// HTTP, for tests that look at the spans that arrive there.
//
// Goal: tests see in plain types what a collector reads from our bytes. Non-goal:
// anything outside tests; the product must not contain the collector's modules.
//
// Ownership: a receiver stops when its test ends.
package spanstest

import (
	"context"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// Collector is a running receiver. GRPC and HTTP are endpoints for an exporter.
type Collector struct {
	GRPC, HTTP string
	sink       consumertest.TracesSink
}

// Span is a span that arrived.
type Span struct {
	TraceID, ID, Parent string // hex; Parent is "" for a root
	TraceState          string
	Flags               uint32 // of OTLP: the low byte has the W3C flags
	Name, Kind          string
	Begin, End          int64 // wall time, in nanoseconds
	Attributes          map[string]any
	DroppedAttributes   int
	Events              []Event
	Links               []Link
	Failed              bool
	StatusText          string
	Resource            map[string]any
	Scope               string
}

// Duration is from Begin to End, in nanoseconds.
func (s *Span) Duration() int64 { return s.End - s.Begin }

// Event is an instant within a span.
type Event struct {
	Name       string
	At         int64
	Attributes map[string]any
}

// Link points at another span.
type Link struct {
	TraceID, SpanID string
	Attributes      map[string]any
}

// New starts a receiver on free loopback ports and stops it with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	free, err := ports.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := start(t, "127.0.0.1:"+free[0], "127.0.0.1:"+free[1])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Listen starts a receiver on two addresses, each host:port.
func Listen(t testing.TB, grpc, http string) *Collector {
	t.Helper()
	c, err := start(t, grpc, http)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t testing.TB, grpc, http string) (*Collector, error) {
	c := &Collector{GRPC: "grpc://" + grpc, HTTP: "http://" + http}
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	text := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": grpc}, "http": map[string]any{"endpoint": http},
	}})
	if err := text.Unmarshal(cfg); err != nil {
		return nil, err
	}
	r, err := factory.CreateTraces(context.Background(), receivertest.NewNopSettings(factory.Type()), cfg, &c.sink)
	if err != nil {
		return nil, err
	}
	if err := r.Start(context.Background(), componenttest.NewNopHost()); err != nil {
		_ = r.Shutdown(context.Background()) // one of its two servers may run
		return nil, err
	}
	t.Cleanup(func() { r.Shutdown(context.Background()) })
	return c, nil
}

// Wait returns the spans that have arrived as soon as there are n or more.
func (c *Collector) Wait(t testing.TB, n int) []Span {
	t.Helper()
	for range 2000 {
		if c.sink.SpanCount() >= n {
			return c.Spans()
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d spans arrived, not %d", c.sink.SpanCount(), n)
	return nil
}

// Spans returns the spans that have arrived, in the order of sending.
func (c *Collector) Spans() (spans []Span) {
	for _, batch := range c.sink.AllTraces() {
		for _, rs := range batch.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					spans = append(spans, plain(s))
					last := &spans[len(spans)-1]
					last.Resource, last.Scope = rs.Resource().Attributes().AsRaw(), ss.Scope().Name()
				}
			}
		}
	}
	return spans
}

func plain(s ptrace.Span) Span {
	out := Span{
		TraceID: s.TraceID().String(), ID: s.SpanID().String(), Parent: s.ParentSpanID().String(), TraceState: s.TraceState().AsRaw(), Flags: s.Flags(),
		Name: s.Name(), Kind: s.Kind().String(), Begin: nanoseconds(s.StartTimestamp()), End: nanoseconds(s.EndTimestamp()),
		Attributes: s.Attributes().AsRaw(), DroppedAttributes: int(s.DroppedAttributesCount()),
		Failed: s.Status().Code() == ptrace.StatusCodeError, StatusText: s.Status().Message(),
	}
	for _, e := range s.Events().All() {
		out.Events = append(out.Events, Event{e.Name(), nanoseconds(e.Timestamp()), e.Attributes().AsRaw()})
	}
	for _, l := range s.Links().All() {
		out.Links = append(out.Links, Link{l.TraceID().String(), l.SpanID().String(), l.Attributes().AsRaw()})
	}
	return out
}

func nanoseconds(t pcommon.Timestamp) int64 { return int64(t) }
