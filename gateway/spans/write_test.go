package spans

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestWriteOTLPIsReadByACollector(t *testing.T) {
	var text bytes.Buffer
	trees := streamed(1)
	if err := WriteOTLP(&text, "v1", "i", NamesGenAI, trees...); err != nil {
		t.Fatal(err)
	}
	got, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want, own := countSpans(trees), trees[0]
	services := map[string]ptrace.SpanSlice{}
	for _, r := range got.ResourceSpans().All() {
		name, _ := r.Resource().Attributes().Get("service.name")
		services[name.Str()] = r.ScopeSpans().At(0).Spans()
	}
	if len(services) != 2 || services["forebay-engine"].Len() == 0 {
		t.Fatalf("the services are %v", slices.Collect(maps.Keys(services)))
	}
	root := services["forebay"].At(0)
	if got.SpanCount() != want || root.TraceID().String() != hex.EncodeToString(own.TraceID[:]) || root.ParentSpanID().String() != hex.EncodeToString(own.Spans[0].Parent[:]) {
		t.Errorf("%d of %d spans, the first %s", got.SpanCount(), want, root.TraceID())
	}
	full := errors.New("the disk is full")
	if err := WriteOTLP(failing{full}, "", "i", Names141, trees...); !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func BenchmarkExport(b *testing.B) {
	e := &Exporter{cfg: Config{QueueMax: 1 << 30}, anchor: anchor, wake: make(chan struct{}, 1)}
	trees := streamed(1)
	b.ReportAllocs()
	for b.Loop() {
		e.Export(trees...)
		e.queue, e.spans = e.queue[:0], 0
	}
}

func BenchmarkMakeSpans(b *testing.B) {
	m := newMaker(&target{}, "", "i", "")
	trees, n := streamed(1), 0
	b.ReportAllocs()
	for b.Loop() {
		m.made, n = m.made[:0], 0
		for i := range trees {
			m.tree(&trees[i], 0)
			n += len(trees[i].Spans)
		}
	}
	b.ReportMetric(float64(n), "spans")
}
