package picker

import (
	"slices"
	"sync"
	"testing"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
)

// BenchmarkPick is an answer to a proxy that shows bodies of 220 KB over real gRPC, of
// conversations that are known: one request at a time, and 150 at a time.
func BenchmarkPick(b *testing.B) {
	w := newWorld(b, Config{ReadLimit: 10 * time.Second})
	p := proxy{mode: modev3.ProcessingMode_BUFFERED, body: chat(1, 220<<10)}
	w.ask(b, p)
	run := func(b *testing.B, atOnce int) {
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
		}
		close(turns)
		asking.Wait()
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	}
	b.Run("one", func(b *testing.B) { run(b, 1) })
	b.Run("150", func(b *testing.B) { run(b, 150) })
	// The decision alone, without the proxy's bytes.
	b.Run("decision", func(b *testing.B) {
		q := question{path: "/v1/chat/completions", authorization: "Bearer k", body: [][]byte{[]byte(p.body)}}
		for b.Loop() {
			w.pick(b.Context(), &q)
		}
	})
	if got := w.Counts(); got[resultLoad] > 0 {
		b.Errorf("picked %v", got)
	}
}
