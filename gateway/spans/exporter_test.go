package spans

import (
	"encoding/hex"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/spans/spanstest"
)

// newExporter is closed with the test, which fails where a goroutine is left.
func newExporter(t *testing.T, cfg Config) *Exporter {
	t.Helper()
	if cfg.FlushLimit == 0 {
		cfg.FlushLimit = time.Minute // a machine under load may need it
	}
	e, err := New(cfg)
	if err != nil || e == nil {
		t.Fatalf("%v, %v", e, err)
	}
	t.Cleanup(func() {
		e.Close()
		noneLeft(t)
	})
	return e
}

// noneLeft waits until no goroutine of an exporter or its connections is left.
func noneLeft(t *testing.T) {
	t.Helper()
	var left string
	for range 500 {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = ""
		for g := range strings.SplitSeq(string(stacks), "\n\n") {
			for _, ours := range []string{"spans.(*Exporter)", "http2Client", "http.(*persistConn)", "grpc.(*addrConn)", "grpcsync.(*CallbackSerializer).run"} {
				if strings.Contains(g, ours) {
					left += g + "\n\n"
				}
			}
		}
		if left == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("goroutines are left:\n%s", left)
}

// TestTreeArrivesAtACollector: a real receiver gets what was handed in, over
// both protocols, with and without compression.
func TestTreeArrivesAtACollector(t *testing.T) {
	collector := spanstest.New(t)
	seen := 0
	for _, cfg := range []Config{
		{Endpoint: collector.GRPC}, {Endpoint: collector.HTTP}, {Endpoint: collector.GRPC, GzipOff: true}, {Endpoint: collector.HTTP, GzipOff: true},
	} {
		cfg.Headers, cfg.ResourceAttributes, cfg.Instance, cfg.ServiceName = "authorization=Bearer%20x", "deployment.environment.name=test,host.name=h1", "i-1", "edge"
		e := newExporter(t, cfg)
		if !e.Export(streamed(1)...) {
			t.Fatal("not taken")
		}
		e.Close()
		all := collector.Wait(t, seen+1)
		spans := all[seen:]
		seen = len(all)
		if s := e.Stats(); s.Exported != uint64(len(spans)) || s.QueueFull+s.Failed+s.ShutDown != 0 {
			t.Errorf("%d spans arrived of %+v", len(spans), s)
		}
		arrived(t, streamed(1)[0], spans)
	}
}

// arrived compares the spans at a collector with the request's own tree.
func arrived(t *testing.T, own Tree, spans []spanstest.Span) {
	t.Helper()
	by, sums := map[string]*spanstest.Span{}, map[string]int64{}
	first := map[string]*spanstest.Span{}
	kernels := map[string]bool{}
	for i := range spans {
		s := &spans[i]
		by[s.TraceID+s.ID] = s
		sums[s.Name] += s.Duration()
		if first[s.Name] == nil {
			first[s.Name] = s
		}
		if class, ok := s.Attributes["forebay.kernel.class"]; ok {
			kernels[class.(string)] = true
		}
		service := "edge"
		if _, kernel := s.Attributes["forebay.kernel.class"]; kernel || engineSpans[s.Name] {
			service = "edge-engine"
		}
		for key, want := range map[string]any{"service.name": service, "service.instance.id": "i-1", "host.name": "h1", "deployment.environment.name": "test"} {
			if s.Resource[key] != want {
				t.Fatalf("the resource has %s=%v", key, s.Resource[key])
			}
		}
	}
	want := own.Spans[0]
	root := first["POST /v1/chat/completions"]
	if root == nil || root.TraceID != hex.EncodeToString(own.TraceID[:]) || root.ID != hex.EncodeToString(want.ID[:]) || root.Parent != hex.EncodeToString(want.Parent[:]) || root.TraceState != "vendor=1" {
		t.Fatalf("the request's span is %+v", root)
	}
	if root.Duration() != want.End-want.Begin || root.Kind != "Server" || root.Flags&0xff != 1 {
		t.Errorf("the request's span is %+v", root)
	}
	for i := range spans {
		s := &spans[i]
		parent := by[s.TraceID+s.Parent]
		switch {
		case s == root || s.Name == "engine.step" && s.Parent == "":
		case parent == nil:
			t.Errorf("%s has a parent that did not arrive", s.Name)
		case s.Begin < parent.Begin || s.End > parent.End:
			t.Errorf("%s is not within %s", s.Name, parent.Name)
		}
		for _, l := range s.Links {
			if by[l.TraceID+l.SpanID] == nil {
				t.Errorf("%s links to what did not arrive", s.Name)
			}
		}
		if (s.Name == "step" || s.Name == "engine.step") && len(s.Links) != 1 {
			t.Errorf("%s has %d links", s.Name, len(s.Links))
		}
	}
	if sum := sums["engine queue"] + sums["prefill"] + sums["decode"]; sum != sums["engine demo"] || sum != int64(84*time.Millisecond) {
		t.Errorf("queue, prefill and decode are %d of %d ns", sum, sums["engine demo"])
	}
	if len(kernels) != 8 || first["mlp"].Attributes["forebay.kernel.count"] != int64(4) {
		t.Errorf("the kernels are %v", kernels)
	}
	if e := first["decode"].Events; len(e) != 8 || e[0].At-root.Begin != int64(61*time.Millisecond) || e[0].Attributes["forebay.step.culprit"] != "req-0" {
		t.Errorf("the slow steps are %+v", e)
	}
	if off := time.Since(time.Unix(0, root.Begin)) - time.Duration(anchoredAge(want.Begin)); off < -time.Minute || off > time.Minute {
		t.Errorf("the request's span begins %v off", off)
	}
}

// anchoredAge is how long ago an instant of CLOCK_MONOTONIC was.
func anchoredAge(instant int64) int64 { return time.Now().UnixNano() - anchor() - instant }

// TestCoreAttributesStay: what matters comes first and stays.
//
// Case H03.
func TestCoreAttributesStay(t *testing.T) {
	collector := spanstest.New(t)
	for name, extra := range map[string][]Attribute{"200 messages": messages(200), "none": nil} {
		e := newExporter(t, Config{Endpoint: collector.GRPC})
		own := streamed(1)[0]
		own.Spans[0].Attributes = append(own.Spans[0].Attributes, extra...)
		before := len(collector.Spans())
		e.Export(own)
		e.Close()
		var root, call *spanstest.Span
		for _, s := range collector.Wait(t, before+1)[before:] {
			switch s.Kind {
			case "Server":
				if s.Parent == hex.EncodeToString(own.Spans[0].Parent[:]) {
					root = &s
				}
			case "Client":
				call = &s
			}
		}
		for _, want := range []struct {
			span *spanstest.Span
			key  string
		}{{root, "forebay.model"}, {root, "forebay.tenant"}, {root, "forebay.outcome"}, {root, "forebay.request.id"}, {root, "http.response.status_code"},
			{call, "gen_ai.request.model"}, {call, "gen_ai.usage.input_tokens"}, {call, "gen_ai.usage.output_tokens"}} {
			if want.span.Attributes[want.key] == nil {
				t.Errorf("%s: %s is missing", name, want.key)
			}
		}
		lost := root.Attributes[droppedAttributes]
		if n := len(root.Attributes); n > attributesMax || extra != nil && (n != attributesMax || lost != int64(root.DroppedAttributes) || uint64(root.DroppedAttributes) != e.Stats().AttributesDropped || root.DroppedAttributes != 7+400-127) {
			t.Errorf("%s: %d attributes, %v are said to be lost, %d to the collector, %d to the counter", name, n, lost, root.DroppedAttributes, e.Stats().AttributesDropped)
		}
		if extra == nil && (lost != nil || root.DroppedAttributes+int(e.Stats().AttributesDropped) != 0) {
			t.Errorf("%s: %v are lost", name, lost)
		}
	}
}

// inOrder sorts the spans of a tree as it has them: a collector gets them by service.
func inOrder(spans []spanstest.Span) []spanstest.Span {
	slices.SortFunc(spans, func(a, b spanstest.Span) int { return strings.Compare(a.ID, b.ID) })
	return spans
}

// TestIDsAreThoseThatWerePropagated: the parent that telemetry took from the
// caller's header, or none, with the state and flags that came along.
func TestIDsAreThoseThatWerePropagated(t *testing.T) {
	collector := spanstest.New(t)
	e := newExporter(t, Config{Endpoint: collector.GRPC})
	cases := map[string]struct {
		parent    [8]byte
		flags     byte
		state     string
		wantState string
	}{
		"good parent":             {[8]byte{0xb7, 7: 0x31}, 1, "a=1,b=2", "a=1,b=2"},
		"not sampled upstream":    {[8]byte{0xb7, 7: 0x31}, 0, "a=1", "a=1"},
		"sampled and random":      {[8]byte{0xb7, 7: 0x31}, 3, "", ""},
		"new root":                {[8]byte{}, 1, "", ""},
		"new root, not sampled":   {[8]byte{}, 0, "", ""},
		"bad state, good parent":  {[8]byte{0xb7, 7: 0x31}, 1, "a=\x01,=", ""},
		"request id is no number": {[8]byte{}, 1, "", ""},
	}
	seen, n := 0, byte(0)
	for name, c := range cases {
		n++
		want := streamed(1)[0]
		want.TraceID[1], want.Spans[0].Parent, want.Flags, want.State = n, c.parent, c.flags, c.state
		e.Export(want)
		spans := inOrder(collector.Wait(t, seen+len(want.Spans))[seen:])
		seen += len(spans)
		for i, s := range spans {
			parent := hex.EncodeToString(want.Spans[i].Parent[:])
			if want.Spans[i].Parent == [8]byte{} {
				parent = ""
			}
			if s.TraceID != hex.EncodeToString(want.TraceID[:]) || s.ID != hex.EncodeToString(want.Spans[i].ID[:]) || s.Parent != parent || s.TraceState != c.wantState || byte(s.Flags) != c.flags {
				t.Errorf("%s: %s is %s/%s under %s with state %q, flags %x", name, s.Name, s.TraceID, s.ID, s.Parent, s.TraceState, s.Flags)
			}
		}
		if spans[0].Attributes["forebay.request.client_id"] != "order#7" {
			t.Errorf("%s: the client's id is %v", name, spans[0].Attributes["forebay.request.client_id"])
		}
	}
}

// TestWallClockSteps: a clock that is set back between two requests, or while one
// runs, moves whole traces and no span against another.
func TestWallClockSteps(t *testing.T) {
	collector := spanstest.New(t)
	e := newExporter(t, Config{Endpoint: collector.HTTP})
	offset := int64(0)
	e.anchor = func() int64 { offset -= int64(time.Hour); return offset + int64(48*time.Hour) }
	seen, before := 0, 0
	for n := range 3 {
		trees := streamed(byte(n))
		trees[0].TraceID[1] = byte(n)
		want := trees[0].Spans
		seen += countSpans(trees)
		e.Export(append(trees[1:], trees[0])...)
		own := slices.DeleteFunc(slices.Clone(collector.Wait(t, seen)[before:]), func(s spanstest.Span) bool { return s.TraceID != hex.EncodeToString(trees[0].TraceID[:]) })
		before = seen
		if len(own) != len(want) {
			t.Errorf("request %d: %d spans of its own, want %d", n, len(own), len(want))
		}
		for i, s := range inOrder(own) {
			if s.Duration() != want[i].End-want[i].Begin || s.Begin != want[i].Begin+offset+int64(48*time.Hour) {
				t.Errorf("request %d: %s lasts %d ns", n, s.Name, s.Duration())
			}
		}
	}
}

// TestBadTextIsReplaced: one text that is not UTF-8 must not cost a whole batch.
func TestBadTextIsReplaced(t *testing.T) {
	collector := spanstest.New(t)
	for _, endpoint := range []string{collector.GRPC, collector.HTTP} {
		e := newExporter(t, Config{Endpoint: endpoint})
		bad := "a\xffb"
		before := len(collector.Spans())
		e.Export(Tree{TraceID: [16]byte{1}, State: bad, Spans: []Span{{
			Name: bad, ID: [8]byte{1}, Begin: start, End: start - 5, Failed: true, StatusText: bad,
			Attributes: []Attribute{String(bad, bad), Strings("list", []string{bad}), Bool("b", true), Float("f", 0.5), String("long", strings.Repeat("ä", 5000)), {Key: "none"}},
			Events:     []Event{{Name: bad, At: start, Attributes: []Attribute{String(bad, bad)}}},
			Links:      []Link{{TraceID: [16]byte{2}, SpanID: [8]byte{2}, Attributes: []Attribute{String(bad, bad)}}},
		}}})
		e.Close()
		s := collector.Wait(t, before+1)[before]
		good := "a\uFFFDb"
		if s.Name != good || s.StatusText != good || s.Attributes[good] != good || s.Events[0].Name != good || s.Links[0].Attributes[good] != good || s.Duration() != 0 {
			t.Errorf("%+v", s)
		}
		if n := len([]rune(s.Attributes["long"].(string))); n != valueRunesMax {
			t.Errorf("a long text has %d characters", n)
		}
	}
}

func TestNilExporterSendsNothing(t *testing.T) {
	for _, cfg := range []Config{{}, {Endpoint: "off", Environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"}}, {Environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "OTEL_SDK_DISABLED=true"}}} {
		e, err := New(cfg)
		if e != nil || err != nil {
			t.Errorf("%v, %v", e, err)
		}
		if e.Export(Tree{}) || e.Names() != Names141 || e.Stats() != (Stats{}) {
			t.Error("a nil exporter took something")
		}
		e.Close()
	}
}
