// Storm audits budgets and counts to the token while everything around them fails.
//
//	go build -o /tmp/forebay . && go run ./bench/storm --binary /tmp/forebay --minutes 20
//
// It starts a Redis with a replica and a Sentinel, and gateways with engines of their
// own that share it. Clients ask all the time, and leave in every state: within the
// body, in the queue, while their prompt is computed, between tokens, at the end. One
// fault follows the other: Redis is killed, frozen, paused, flushed and failed over, an
// engine is stopped, and starved of processors. At the end all becomes quiet, and these must
// be equal:
//
//   - what each engine says it computed, found in its cache and generated;
//   - what its gateway's metrics count;
//   - the sums of its usage file, with one line for each request that ran;
//   - what the tenants' quotas in Redis have lost, over all gateways;
//   - of each answer that came whole, what its client was told.
//
// Nothing may run, wait, or hold a place. The status is 1 if anything differs. Engines are
// not killed: what one had computed and not told yet is known to nobody.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options holds the flags.
type options struct {
	binary   string
	length   time.Duration
	faults   []fault
	most     int           // faults in all, 0 for no limit
	calm     time.Duration // between faults
	gateways int
	clients  int
	seed     uint64
	progress io.Writer
}

func main() {
	o := options{progress: os.Stderr, faults: faults}
	minutes := 0.0
	flag.StringVar(&o.binary, "binary", "", "forebay to test")
	flag.Float64Var(&minutes, "minutes", 20, "how long the storm lasts")
	flag.DurationVar(&o.calm, "calm", 3*time.Second, "time between faults")
	flag.IntVar(&o.gateways, "gateways", 2, "how many gateways share the budgets")
	flag.IntVar(&o.clients, "clients", 24, "how many clients ask at the same time")
	flag.Uint64Var(&o.seed, "seed", 1, "of requests and faults")
	flag.Parse()
	o.length = time.Duration(minutes * float64(time.Minute))
	if o.binary == "" || flag.NArg() > 0 || o.length <= 0 || o.gateways < 1 || o.clients < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := run(ctx, &o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	found.print(os.Stdout)
	if len(found.wrong) > 0 {
		os.Exit(1)
	}
}

// run has one storm, and audits what it leaves.
func run(ctx context.Context, o *options) (found *audit, err error) {
	folder, err := os.MkdirTemp("", "forebay-storm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	s := &scene{folder: folder}
	defer s.stop()
	if err := s.start(ctx, o); err != nil {
		return nil, err
	}
	storm, end := context.WithTimeout(ctx, o.length)
	defer end()
	crowd := newCrowd(s, o)
	crowd.begin(storm)
	counts, err := s.rage(storm, o, rand.New(rand.NewPCG(o.seed, 0)))
	end()
	crowd.wait()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errors.New("stopped before its end: nothing was audited")
	}
	if err := s.calm(ctx); err != nil {
		return nil, err
	}
	return s.audit(ctx, crowd, counts)
}
