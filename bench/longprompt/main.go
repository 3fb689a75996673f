// Longprompt measures how a long prompt and running streams affect each other: the
// gaps between the tokens of four interactive streams without and with the prompt,
// the prompt's time to first token alone and beside them, and the pauses of the
// garbage collector.
//
//	go run ./bench/longprompt --tokens 7900 MODEL
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/internal/wire"
)

func main() {
	streams := flag.Int("streams", 4, "streams that are being answered")
	tokens := flag.Int("tokens", 7900, "tokens of the long prompt")
	stretch := flag.Float64("stretch", 0, "engine.long_stretch; 0 is its default")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: longprompt [--streams N] [--tokens N] [--stretch X] MODEL")
		os.Exit(2)
	}
	if err := measure(flag.Arg(0), *streams, *tokens, *stretch); err != nil {
		fmt.Fprintln(os.Stderr, "longprompt:", err)
		os.Exit(1)
	}
}

func measure(path string, streams, tokens int, stretch float64) error {
	e, err := engine.New(engine.Config{Model: path, LongStretch: stretch})
	if err != nil {
		return err
	}
	defer e.Close()
	m := e.State().Model
	fmt.Printf("%s, %s, %d streams, a prompt of %d tokens\n", m.ID, m.Kernels, streams, tokens)
	alone, err := answer(e, request{seed: 1, tokens: tokens, output: 1, long: true})
	if err != nil {
		return err
	}
	fmt.Printf("the long prompt alone: %v\n", alone.first.Round(time.Millisecond))

	gaps, _, err := beside(e, streams, func() (time.Duration, error) { time.Sleep(3 * time.Second); return 0, nil })
	if err != nil {
		return err
	}
	calm := quantiles(gaps)
	fmt.Printf("gaps undisturbed: p50 %v, p99 %v, most %v\n", calm[0], calm[1], calm[2])
	gaps, took, err := beside(e, streams, func() (time.Duration, error) {
		a, err := answer(e, request{seed: 2, tokens: tokens, output: 1, long: true})
		return a.first, err
	})
	if err != nil {
		return err
	}
	held := quantiles(gaps)
	fmt.Printf("gaps beside it:   p50 %v, p99 %v, most %v: p99 is %.2f times undisturbed\n", held[0], held[1], held[2], float64(held[1])/float64(calm[1]))
	fmt.Printf("the long prompt beside them: %v, %.2f times alone\n", took.Round(time.Millisecond), float64(took)/float64(alone.first))
	pauses, high := collectorPauses()
	fmt.Printf("garbage collector: %d pauses since the start, 99.9 %% of them below %v\n", pauses, high)
	s := e.State()
	fmt.Printf("steps over prediction: median %.2f, 90 %% below %.2f; cost %+v\n", s.RatioMedian, s.RatioHigh, s.Cost)
	return nil
}

// collectorPauses returns how often the garbage collector stopped all goroutines,
// and the 99.9 % quantile of these pauses.
func collectorPauses() (n uint64, high time.Duration) {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	h := sample[0].Value.Float64Histogram()
	for _, count := range h.Counts {
		n += count
	}
	below := uint64(0)
	for i, count := range h.Counts {
		if below += count; below*1000 >= n*999 {
			return n, time.Duration(h.Buckets[i+1] * float64(time.Second))
		}
	}
	return n, 0
}

// beside runs streams while during runs, and returns the gaps between their tokens
// in that time.
func beside(e *engine.Engine, streams int, during func() (time.Duration, error)) ([]time.Duration, time.Duration, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	all, errs := make([][]time.Duration, streams), make([]error, streams)
	var running sync.WaitGroup
	for i := range streams {
		running.Go(func() {
			for seed := uint64(100 * (i + 1)); ctx.Err() == nil && errs[i] == nil; seed++ {
				var a reply
				a, errs[i] = answer(e, request{seed: seed, tokens: 100, output: 400, ctx: ctx})
				all[i] = append(all[i], a.gaps...)
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // until all streams decode
	took, err := during()
	stop()
	running.Wait()
	for _, other := range errs {
		if err == nil {
			err = other
		}
	}
	return slices.Concat(all...), took, err
}

type request struct {
	seed           uint64
	tokens, output int
	long           bool
	ctx            context.Context // ends it early; nil does not
}

type reply struct {
	first time.Duration   // to the first token
	gaps  []time.Duration // between tokens
}

// answer requests one answer and reads it to its end.
func answer(e *engine.Engine, r request) (a reply, err error) {
	random := rand.New(rand.NewPCG(r.seed, 1))
	prompt := make([]int32, r.tokens)
	for i := range prompt {
		prompt[i] = int32(1000 + random.IntN(20_000))
	}
	o := wire.Options{N: 1, MaxTokens: r.output, IgnoreEOS: true}
	p, err := e.Prepare(context.Background(), &wire.Request{Tokens: prompt})
	if err != nil {
		return a, err
	}
	notify := make(chan struct{}, 1)
	began := time.Now()
	s := e.Generate(&wire.Generation{Prompt: p, Options: o, Long: r.long, Notify: notify})
	defer s.Close()
	if r.ctx == nil {
		r.ctx = context.Background()
	}
	last := began
	for {
		select {
		case <-notify:
		case <-r.ctx.Done():
			return a, nil
		}
		now := time.Now()
		for _, event := range s.Take(nil) {
			switch {
			case event.End != nil && event.End.Err != nil:
				return a, event.End.Err
			case event.End != nil:
				return a, nil
			case event.TokenCount == 1:
				a.first = now.Sub(began)
			default:
				a.gaps = append(a.gaps, now.Sub(last))
			}
			last = now
		}
	}
}

// quantiles returns the median, the 99th percentile and the maximum.
func quantiles(all []time.Duration) [3]time.Duration {
	slices.Sort(all)
	n := len(all) - 1
	var q [3]time.Duration
	for i, at := range []int{n / 2, n * 99 / 100, n} {
		q[i] = all[at].Round(10 * time.Microsecond)
	}
	return q
}
