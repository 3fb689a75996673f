package picker

import (
	"slices"
	"sync"
	"testing"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// BenchmarkPick is an answer to a proxy that shows bodies of 220 KB over real gRPC, of
// conversations that are known: one request at a time; 300 a second beside 150 whose
// streams stay open; and 150 at a time without a pause.
func BenchmarkPick(b *testing.B) {
	w := newWorld(b, Config{ReadLimit: 10 * time.Second})
	p := proxy{mode: modev3.ProcessingMode_BUFFERED, body: chat(1, 220<<10)}
	w.ask(b, p)
	run := func(b *testing.B, atOnce int, every time.Duration) {
		b.SetBytes(int64(len(p.body)))
		var mu sync.Mutex
		var took []time.Duration
		var asking sync.WaitGroup
		turns := make(chan struct{})
		for range atOnce {
			asking.Go(func() {
				for range turns {
					began := time.Now()
					w.ask(b, p)
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
			})
		}
		for b.Loop() {
			turns <- struct{}{}
			time.Sleep(every)
		}
		close(turns)
		asking.Wait()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
	b.Run("one", func(b *testing.B) { run(b, 1, 0) })
	b.Run("paced", func(b *testing.B) {
		for range 150 {
			s, err := w.client.Process(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			s.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{EndOfStream: true}}})
			if _, err := s.Recv(); err != nil {
				b.Fatal(err)
			}
		}
		run(b, 150, time.Second/300)
	})
	b.Run("150", func(b *testing.B) { run(b, 150, 0) })
	// The decision alone, without the proxy's bytes.
	b.Run("decision", func(b *testing.B) {
		before := w.Counts()[resultKnown]
		q := question{path: "/v1/chat/completions", authorization: "Bearer k", body: slices.Collect(slices.Chunk([]byte(p.body), 16<<10))}
		n := uint64(0)
		for b.Loop() {
			w.pick(b.Context(), &q)
			n++
		}
		if known := w.Counts()[resultKnown] - before; known != n {
			b.Errorf("%d of %d picks were by what is known", known, n)
		}
	})
}
