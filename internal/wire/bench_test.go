package wire

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// handEngine hands out streams that the benchmark puts events into.
type handEngine struct {
	stillEngine
	streams chan *Stream
}

func (e handEngine) Generate(g *Generation) *Stream {
	c := &cancelControl{}
	c.stream = NewStream(64, g.Notify, c)
	e.streams <- c.stream
	return c.stream
}

// cancelControl answers a cancel and nothing else.
type cancelControl struct {
	stillControl
	stream *Stream
}

func (c *cancelControl) Cancel() {
	c.stream.Put(Event{End: &End{Err: Errorf(Canceled, "the reader left")}})
	c.stream.Wake()
}

// socketPair serves engine on one end of a Unix socket until stop, and gives
// a client on the other.
func socketPair(b testing.TB, engine Engine) (_ *Client, stop func()) {
	b.Helper()
	ln, err := Listen(b.TempDir() + "/e.sock")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, ln, engine, ServerConfig{}) }()
	cfg := Config{Path: ln.Addr().String()}
	conf.Fill(&cfg)
	c := newClient(cfg, func(ctx context.Context) (net.Conn, error) { return dialPath(ctx, cfg.Path) })
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.Cleanup(func() { c.Close(); stop() })
	wait, enough := context.WithTimeout(ctx, 20*time.Second)
	defer enough()
	if err := c.WaitReady(wait); err != nil {
		b.Fatal(err)
	}
	return c, stop
}

// BenchmarkStep is a step of n sequences from the engine's Put and Wake to
// the last reader's Take, over the socket, with a pause before each as a
// model's step would make.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			engine := &changingEngine{handEngine: handEngine{streams: make(chan *Stream, n)}}
			engine.state.Store(new(State))
			client, _ := socketPair(b, engine)
			puts, takes, notifies := make([]*Stream, n), make([]*Stream, n), make([]chan struct{}, n)
			for i := range n {
				notifies[i] = make(chan struct{}, 1)
				takes[i] = client.Generate(&Generation{Prompt: &Prompt{Tokens: []int32{1}}, Options: Options{N: 1}, Notify: notifies[i]})
				puts[i] = <-engine.streams
			}
			var last []Event
			waits := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			for b.Loop() {
				time.Sleep(200 * time.Microsecond)
				engine.state.Store(new(State))
				start := time.Now()
				for _, s := range puts {
					s.Put(Event{Text: " token", TokenCount: 1})
				}
				for _, s := range puts {
					s.Wake()
				}
				for i, s := range takes {
					<-notifies[i]
					last = s.Take(last[:0])
				}
				waits = append(waits, time.Since(start))
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(waits[len(waits)*99/100].Nanoseconds())/1e3, "p99-µs")
			for _, s := range takes {
				s.Close()
			}
		})
	}
}
