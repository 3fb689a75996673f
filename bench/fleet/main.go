// Fleet plays a trace of conversations to real gateways that share one Redis, beside the same
// gateways behind a balancer that goes round, and behind one that keeps sessions together.
//
//	go build -o /tmp/forebay . && go run ./bench/fleet --binary /tmp/forebay --trace TRACE
//
// Each gateway is a process, and so is its engine, which is paced: it computes nothing, and
// takes the time of one prompt after the other. A token of the trace takes 100 µs and 10 ns
// for each pair of tokens, and a token of an answer 250 µs; a replica caches 5,000 blocks of
// 512 tokens. For each 512 tokens 16 are sent, and all times are divided by --speed. The load
// is the work without any cache, over what the replicas can do.
//
// All fleets run at the same time. Requests wait and none is refused, so that placement alone
// makes the difference. Before that it measures what a hop adds, on idle replicas.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// options holds the flags.
type options struct {
	binary, trace, engine string
	replicas, pages       int
	requests, hops        int
	speed                 int
	load                  float64
}

// cost is that of a paced engine.
func (o *options) cost() cost.Cost {
	return cost.Cost{PrefillToken: 100e3 * scale / float64(o.speed), PrefillContext: 10 * scale * scale / float64(o.speed), DecodeRow: float64(o.token())}
}

// token is the time of a token of an answer.
func (o *options) token() time.Duration { return 250 * time.Microsecond / time.Duration(o.speed) }

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "", "forebay to test")
	flag.StringVar(&o.trace, "trace", "../shared/traces/mooncake-conversation.jsonl.gz", "Mooncake's conversations")
	flag.IntVar(&o.replicas, "replicas", 3, "gateways of a fleet, at most 9")
	flag.IntVar(&o.pages, "pages", 5000, "blocks that an engine caches")
	flag.IntVar(&o.requests, "requests", 2500, "requests of the trace")
	flag.IntVar(&o.hops, "hops", 500, "requests by which a hop is measured")
	flag.IntVar(&o.speed, "speed", 20, "how much faster than the trace's world everything is")
	flag.Float64Var(&o.load, "load", 0.95, "work without any cache, over what the replicas can do")
	flag.StringVar(&o.engine, "engine", "", "be a paced engine at this socket; fleet starts itself so")
	flag.Parse()
	if o.engine == "" && o.binary == "" || flag.NArg() > 0 || o.replicas < 2 || o.replicas > 9 || o.speed < 1 || o.requests < 2 || o.pages < 1 || o.load <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	err := error(nil)
	if o.engine != "" {
		err = serveEngine(o.engine, o.pages, o.cost(), o.token())
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		_, err = o.run(ctx, os.Stdout)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run measures the hop and plays the trace. It returns how each fleet fared: ours is the
// last.
func (o *options) run(ctx context.Context, out io.Writer) ([]outcome, error) {
	trace, err := readTrace(o.trace, o.requests)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "forebay-fleet-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "forebay.yaml"), []byte(o.config()), 0o600); err != nil {
		return nil, err
	}
	s := &scene{folder: folder}
	defer s.stop()
	redis, err := s.redis(ctx)
	if err != nil {
		return nil, err
	}
	var fleets []*fleet
	for _, name := range []string{"round", "sticky", "forebay"} {
		store := ""
		if name == "forebay" {
			store = redis
		}
		f, err := s.fleetOf(ctx, o, name, store)
		if err != nil {
			return nil, err
		}
		fleets = append(fleets, f)
	}
	if err := o.measureHop(ctx, fleets[2], out); err != nil {
		return nil, err
	}
	c, work := o.cost(), time.Duration(0)
	for i := range trace {
		work += trace[i].prefill(&c) + time.Duration(trace[i].output)*o.token()
	}
	pace := float64(work) / (o.load * float64(o.replicas) * float64(trace[len(trace)-1].at-trace[0].at))
	began, outcomes := time.Now().Add(time.Second), make([]outcome, len(fleets))
	var playing sync.WaitGroup
	for i, f := range fleets {
		playing.Go(func() { outcomes[i] = o.play(ctx, f, trace, began, pace) })
	}
	playing.Wait()
	fmt.Fprintf(out, "%d requests, %d replicas, load %.2f, %d times as fast\n", len(trace), o.replicas, o.load, o.speed)
	for _, r := range outcomes {
		fmt.Fprintf(out, "%-8s good %5.1f %%, first token mean %6.2f s, p95 %6.2f s, from the cache %4.1f %%, busiest replica %.2f, moved %4.1f %%, failed %d\n",
			r.name, 100*r.good, r.mean.Seconds(), r.p95.Seconds(), 100*r.hits, r.busiest, 100*r.moved, r.failed)
	}
	ours := outcomes[2]
	fmt.Fprintf(out, "forebay over round %.2f, over sticky %.2f\n", ours.good/max(outcomes[0].good, 1e-9), ours.good/max(outcomes[1].good, 1e-9))
	return outcomes, ctx.Err()
}

// measureHop asks the first replica for a prompt that it has, and the second one for the same,
// in turns.
func (o *options) measureHop(ctx context.Context, f *fleet, out io.Writer) error {
	var body []byte
	try := uint64(0)
	err := until(ctx, "a hop is made", func() bool {
		try++
		a := arrival{blocks: make([]uint64, 200), rest: 1} // long enough to be worth a hop at any speed
		for i := range a.blocks {
			a.blocks[i] = 1<<25 + 1000*try + uint64(i)
		}
		body = a.request(int(try), 2)
		ask(ctx, f.urls[0], body, time.Now())
		time.Sleep(200 * time.Millisecond) // the second replica hears of it
		return ask(ctx, f.urls[1], body, time.Now()).moved
	})
	if err != nil {
		return err
	}
	var here, there []time.Duration
	for range o.hops {
		own, hop := ask(ctx, f.urls[0], body, time.Now()), ask(ctx, f.urls[1], body, time.Now())
		if own.err == nil && hop.err == nil && hop.moved && !own.moved {
			here, there = append(here, own.first), append(there, hop.first)
		}
	}
	if len(there) < max(1, o.hops/2) {
		return fmt.Errorf("of %d requests %d made a hop", o.hops, len(there))
	}
	slices.Sort(here)
	slices.Sort(there)
	at := func(all []time.Duration, q float64) time.Duration { return all[int(q*float64(len(all)-1))] }
	fmt.Fprintf(out, "a first token without a hop: p50 %v, p99 %v; with one: p50 %v, p99 %v; the hop adds p50 %v, p99 %v\n",
		at(here, .5), at(here, .99), at(there, .5), at(there, .99), at(there, .5)-at(here, .5), at(there, .99)-at(here, .5))
	return nil
}
