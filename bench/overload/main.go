// Overload measures what a server does with more requests than it can compute:
// how many it serves in time, how many of those it admitted break their goal for
// the first token, and how soon it refuses the others.
//
//	go build -o /tmp/forebay . && go run ./bench/overload --binary /tmp/forebay --model MODEL.gguf
//	go run ./bench/overload --binary /tmp/forebay --scenario backlog --factors 1.2,5 --runs 1
//	go run ./bench/overload --binary /tmp/forebay --model MODEL.gguf --peer "python3 ../shared/peers/llama_server.py {model} {port} 8 16384"
//
// It starts `forebay serve` with the defaults that ship; words after the flags are
// further arguments of it. With --url it measures a server that runs already, with
// --peer another one in turns with the first. Each run first measures the server's
// capacity with --clients that each wait for their answers, then sends requests
// with exponential gaps at each of --factors times that, whatever becomes of them.
//
// The client shares the processors with the server, so it measures how much of them
// it takes itself, and how late it sends its requests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options holds the flags.
type options struct {
	binary, model, url, log string
	peer                    string
	serve                   []string // further arguments of forebay serve
	command                 string   // that measures the same
	scenario                string
	factors                 []float64
	clients, runs           int
	given                   float64       // capacity of the first server; 0 to measure it
	length, calibration     time.Duration // of an open run, and of the measurement of capacity
	drain                   time.Duration
	seed                    uint64
	json, record            string
	progress                io.Writer
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == spinFlag {
		spin()
	}
	o, err := parseOptions(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(2)
	}
	debug.SetGCPercent(400) // memory is cheap here, and processor time the server's
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string) (*options, error) {
	o := &options{progress: os.Stderr}
	f := flag.NewFlagSet("overload", flag.ContinueOnError)
	f.StringVar(&o.binary, "binary", "", "forebay binary to start")
	f.StringVar(&o.url, "url", "", "server that runs already, such as http://127.0.0.1:8080, instead of --binary")
	f.StringVar(&o.log, "log", "", "file that takes the access log of the server at --url; empty for none")
	f.StringVar(&o.model, "model", "", "model file; empty is the embedded demo model")
	f.StringVar(&o.peer, "peer", "", "command that starts another server, measured in turns; {port} and {model} are replaced")
	f.StringVar(&o.scenario, "scenario", "uniform", "load: "+strings.Join(scenarioNames(), ", "))
	factors := f.String("factors", "0.8,1.2,2,5,10", "offered load, as multiples of the capacity")
	f.IntVar(&o.clients, "clients", 12, "clients that measure the capacity, each waiting for its answers")
	f.Float64Var(&o.given, "capacity", 0, "capacity of the first server in requests a second, instead of measuring it")
	f.IntVar(&o.runs, "runs", 3, "times that all is measured")
	seconds := f.Float64("seconds", 15, "length of a run at one factor")
	calibration := f.Float64("capacity-seconds", 10, "length of the measurement of capacity, after 2 s of the same load")
	f.DurationVar(&o.drain, "drain", 30*time.Second, "longest wait for answers after a run")
	f.Uint64Var(&o.seed, "seed", 1, "seed of arrivals and prompts")
	f.StringVar(&o.json, "json", "", "file for all numbers")
	f.StringVar(&o.record, "record", "", "folder for a trace of every run, which the simulator can replay")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.serve, o.command = f.Args(), commandOf(f)
	o.length, o.calibration = secondsOf(*seconds), secondsOf(*calibration)
	var err error
	if o.factors, err = parseFactors(*factors); err != nil {
		return nil, err
	}
	return o, o.check()
}

// commandOf is the command line without the folders of files.
func commandOf(f *flag.FlagSet) string {
	words := []string{"go run ./bench/overload"}
	f.Visit(func(g *flag.Flag) {
		value := g.Value.String()
		switch g.Name {
		case "json", "record", "log":
			return
		case "binary", "model":
			value = filepath.Base(value)
		case "peer":
			parts := strings.Fields(value)
			for i := range parts {
				parts[i] = filepath.Base(parts[i])
			}
			value = strconv.Quote(strings.Join(parts, " "))
		}
		words = append(words, "--"+g.Name, value)
	})
	return strings.Join(append(words, f.Args()...), " ")
}

func (o *options) check() error {
	switch {
	case (o.binary == "") == (o.url == ""):
		return errors.New("give either --binary FOREBAY to start a server, or --url URL of one that runs")
	case o.url != "" && len(o.serve) > 0:
		return fmt.Errorf("%q: arguments of forebay serve need --binary", o.serve[0])
	case o.url == "" && o.log != "":
		return errors.New("--log is for --url; a server that is started here has its log read anyway")
	case scenarios[o.scenario] == nil:
		return fmt.Errorf("--scenario %q; allowed are %s", o.scenario, strings.Join(scenarioNames(), ", "))
	case o.clients < 1 || o.clients > 10_000:
		return fmt.Errorf("--clients is %d; allowed is 1 to 10000", o.clients)
	case !(o.given >= 0 && o.given <= 1e6):
		return fmt.Errorf("--capacity is %g; allowed is 0, which measures it, to 1e6", o.given)
	case o.runs < 1 || o.runs > 100:
		return fmt.Errorf("--runs is %d; allowed is 1 to 100", o.runs)
	case o.length < time.Second || o.length > time.Hour:
		return fmt.Errorf("--seconds is %g; allowed is 1 to 3600", o.length.Seconds())
	case o.calibration < time.Second || o.calibration > time.Hour:
		return fmt.Errorf("--capacity-seconds is %g; allowed is 1 to 3600", o.calibration.Seconds())
	case o.drain < 0:
		return fmt.Errorf("--drain is %v; it must be 0 or more", o.drain)
	}
	return nil
}

func parseFactors(text string) (factors []float64, err error) {
	for word := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(x > 0 && x <= 1000) {
			return nil, fmt.Errorf("--factors: %q is not a number above 0, up to 1000", word)
		}
		factors = append(factors, x)
	}
	return factors, nil
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// run starts the servers, measures them in turns, and prints the table.
func run(ctx context.Context, o *options, out io.Writer) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	servers, err := startServers(ctx, o, cancel)
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.stop())
		}
	}()
	if err != nil {
		return err
	}
	report := newReport(o)
	measureErr := measureAll(ctx, o, servers, report)
	if len(report.Runs) == 0 {
		return measureErr
	}
	fmt.Fprint(out, report.markdown())
	if o.json != "" {
		measureErr = errors.Join(measureErr, report.writeJSON(o.json))
	}
	return measureErr
}

func measureAll(ctx context.Context, o *options, servers []*server, report *report) error {
	for n := 1; n <= o.runs; n++ {
		turns := make([]*turn, len(servers))
		for i, s := range servers {
			turns[i] = &turn{options: o, server: s, number: n}
			if err := turns[i].calibrate(ctx, i == 0); err != nil {
				return err
			}
			report.Capacities = append(report.Capacities, turns[i].capacity)
		}
		for at, factor := range o.factors {
			for _, t := range turns {
				if t.capacity.Alone == 0 { // of a peer
					continue
				}
				tallies, err := t.measure(ctx, at, factor)
				if err != nil {
					return err
				}
				report.Runs = append(report.Runs, tallies...)
			}
		}
	}
	return nil
}
