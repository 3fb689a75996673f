package spans

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forebay-io/forebay/gateway/spans/spanstest"
	"github.com/forebay-io/forebay/internal/ports"
)

// gate is a collector that answers when it is told to, with what it is told.
type gate struct {
	coltracepb.UnimplementedTraceServiceServer
	came   chan struct{} // one for each export that arrived
	answer chan answer
	gone   chan struct{} // closed with the test
}

type answer struct {
	err      error
	rejected int64
}

func newGate(t *testing.T) *gate {
	g := &gate{came: make(chan struct{}, 1<<16), answer: make(chan answer), gone: make(chan struct{})}
	t.Cleanup(func() { close(g.gone) })
	return g
}

// open answers every export from now on.
func (g *gate) open(a answer) {
	go func() {
		for {
			select {
			case g.answer <- a:
			case <-g.gone:
				return
			}
		}
	}()
}

func (g *gate) Export(ctx context.Context, _ *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	g.came <- struct{}{}
	select {
	case a := <-g.answer:
		r := &coltracepb.ExportTraceServiceResponse{}
		if a.rejected != 0 {
			r.PartialSuccess = &coltracepb.ExportTracePartialSuccess{RejectedSpans: a.rejected, ErrorMessage: "too old"}
		}
		return r, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.gone:
		return nil, status.Error(codes.Unavailable, "the test is over")
	}
}

// serveGRPC and serveHTTP offer the gate and return its endpoint.
func (g *gate) serveGRPC(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, g)
	go server.Serve(ln)
	t.Cleanup(server.Stop)
	return "grpc://" + ln.Addr().String()
}

func (g *gate) serveHTTP(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		g.came <- struct{}{}
		select {
		case a := <-g.answer:
			if a.err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		case <-r.Context().Done():
		case <-g.gone:
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

// silent accepts connections and never says anything.
func silent(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	return ln.Addr().String()
}

// small is a tree of n spans.
func small(n int) Tree {
	t := Tree{TraceID: [16]byte{1}, Flags: 1}
	for i := range n {
		t.Spans = append(t.Spans, Span{Name: "s", ID: [8]byte{1, byte(i >> 8), byte(i)}, Begin: start, End: start + 1})
	}
	return t
}

// balance holds that every span that was handed in is in exactly one count.
func balance(t *testing.T, handedIn uint64, s Stats) {
	t.Helper()
	if sum := s.Exported + s.QueueFull + s.Failed + s.ShutDown + uint64(s.Queued); sum != handedIn {
		t.Errorf("%+v sums to %d of %d spans", s, sum, handedIn)
	}
}

// TestCollectorThatNeverAnswers: the gate stays shut until after Close, so a
// call of Export or Close that returned did not wait for the collector.
//
// Case H05.
func TestCollectorThatNeverAnswers(t *testing.T) {
	g := newGate(t)
	for name, endpoint := range map[string]string{
		"grpc": g.serveGRPC(t), "http": g.serveHTTP(t), "grpc, silent": "grpc://" + silent(t), "http, silent": "http://" + silent(t),
	} {
		var log bytes.Buffer
		e := newExporter(t, Config{Endpoint: endpoint, QueueMax: 2048, FlushLimit: 20 * time.Millisecond, ExportTimeout: time.Hour / 10, Log: slog.New(slog.NewTextHandler(&log, nil))})
		const each, calls = 20, 400
		taken := 0
		for range calls {
			if e.Export(small(each)) {
				taken++
			}
		}
		s := e.Stats()
		balance(t, each*calls, Stats{QueueFull: s.QueueFull, Queued: taken * each})
		if s.QueueFull == 0 || s.Exported+s.Failed != 0 || taken*each > 2048+512 {
			t.Errorf("%s: %d calls were taken; %+v", name, taken, s)
		}
		e.Close()
		e.Close()
		s = e.Stats()
		want := fmt.Sprintf(`msg="spans were lost" stopped=%d failed=0 queue_full=%d exported=0`, s.ShutDown, s.QueueFull)
		if strings.Count(log.String(), want) != 1 || s.ShutDown != uint64(taken)*each {
			t.Errorf("%s: the log has not %q:\n%s", name, want, log.String())
		}
		if e.Export(small(each)) {
			t.Errorf("%s: taken after Close", name)
		}
		s = e.Stats()
		balance(t, each*(calls+1), s)
		if s.ShutDown != uint64(taken+1)*each {
			t.Errorf("%s: after Close %+v", name, s)
		}
	}
}

// TestCollectorThatIsSlowAndRecovers: exports go on after time-outs and errors.
//
// Case H05.
func TestCollectorThatIsSlowAndRecovers(t *testing.T) {
	for _, protocol := range []string{"grpc", "http"} {
		g := newGate(t)
		endpoint := map[string]func(*testing.T) string{"grpc": g.serveGRPC, "http": g.serveHTTP}[protocol]
		var log bytes.Buffer
		e := newExporter(t, Config{Endpoint: endpoint(t), ExportTimeout: 200 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
		e.Export(small(3)) // times out
		<-g.came
		e.Export(small(4)) // waits behind it, and times out as well
		for e.Stats().Failed < 7 {
			time.Sleep(time.Millisecond)
		}
		g.open(answer{})
		handedIn := uint64(7)
		for e.Stats().Exported == 0 {
			e.Export(small(5))
			handedIn += 5
			time.Sleep(10 * time.Millisecond)
		}
		e.Close()
		s := e.Stats()
		balance(t, handedIn, s)
		if s.Failed < 7 || s.QueueFull+s.ShutDown != 0 {
			t.Errorf("%s: %+v", protocol, s)
		}
		if text := log.String(); !strings.Contains(text, "cannot be exported") || strings.Count(text, "cannot be exported") != strings.Count(text, "exported again") {
			t.Errorf("%s: the log says\n%s", protocol, text)
		}
	}
}

// TestCollectorThatRefusesAndComesBack: first nobody listens, then a real
// collector does, at the same address.
//
// Case H05.
func TestCollectorThatRefusesAndComesBack(t *testing.T) {
	addresses := map[string]string{"grpc": ports.MustAddress(), "http": ports.MustAddress()}
	exporters := map[string]*Exporter{}
	for protocol, address := range addresses {
		e := newExporter(t, Config{Endpoint: protocol + "://" + address, ExportTimeout: 100 * time.Millisecond})
		exporters[protocol] = e
		for e.Stats().Failed == 0 {
			e.Export(small(10))
			time.Sleep(time.Millisecond)
		}
	}
	collector := spanstest.Listen(t, addresses["grpc"], addresses["http"])
	want := 0
	for _, e := range exporters {
		for e.Stats().Exported == 0 {
			e.Export(small(10))
			time.Sleep(10 * time.Millisecond)
		}
		e.Close()
		want += int(e.Stats().Exported)
	}
	// Those whose answer came too late have arrived as well, and count as failed.
	if got := len(collector.Wait(t, want)); got < want {
		t.Errorf("%d spans arrived of %d", got, want)
	}
}

func TestPartOfABatchIsRejected(t *testing.T) {
	g := newGate(t)
	g.open(answer{rejected: 3})
	e := newExporter(t, Config{Endpoint: g.serveGRPC(t)})
	e.Export(small(10))
	e.Close()
	if s := e.Stats(); s != (Stats{Exported: 7, Failed: 3}) {
		t.Errorf("%+v", s)
	}
}

func TestRefusalIsNotRetriedForever(t *testing.T) {
	g := newGate(t)
	g.open(answer{err: status.Error(codes.PermissionDenied, "no")})
	e := newExporter(t, Config{Endpoint: g.serveGRPC(t)})
	e.Export(small(10))
	e.Close()
	if s := e.Stats(); s != (Stats{Failed: 10}) || len(g.came) != 1 {
		t.Errorf("%+v after %d exports", s, len(g.came))
	}
}

// TestTreesAreTakenWhole: a call is taken whole or not at all, and what is
// larger than a batch still arrives.
func TestTreesAreTakenWhole(t *testing.T) {
	collector := spanstest.New(t)
	e := newExporter(t, Config{Endpoint: collector.HTTP, QueueMax: 2048, BatchMax: 100})
	if e.Export(small(2049)) || e.Stats().QueueFull != 2049 {
		t.Errorf("a tree larger than the queue: %+v", e.Stats())
	}
	if !e.Export(small(2048)) {
		t.Error("a tree as large as the queue was not taken")
	}
	e.Close()
	if n := len(collector.Wait(t, 2048)); n != 2048 {
		t.Errorf("%d spans arrived", n)
	}
}
