// Compare runs this engine and others in turns on the same files and prints the
// ratios, as a Markdown table and as JSON.
//
//	go build -o /tmp/forebay . && go run ./bench/compare --forebay /tmp/forebay model.gguf
//
// The others are llama.cpp and OpenVINO GenAI. The scripts llamacpp_bench.py and
// openvino_bench.py in the folder --peers run them, with --python. An engine that
// is not installed is listed as missing.
//
// Machines differ, and other guests disturb them, so only rates of the same run are
// comparable. Each round runs every engine once, in an order that rotates from
// round to round, and the medians over the rounds are compared. Each run of this
// engine also measures the machine's own rates.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options holds the flags.
type options struct {
	forebay, peers, python string
	kernels                string
	rounds, prefill        int
	threads                int
	decode, flash          string
	llamaArgs, openvinoArg string
	limit                  time.Duration
	models                 []string
	progress               io.Writer
}

func main() {
	o := options{progress: os.Stderr}
	flag.StringVar(&o.forebay, "forebay", "", "binary of this engine")
	flag.StringVar(&o.peers, "peers", filepath.Join("..", "shared", "peers"), "folder of the scripts for the others")
	flag.StringVar(&o.python, "python", "python3", "Python that has the others installed")
	flag.StringVar(&o.kernels, "kernels", "", "kernel set of this engine; empty takes the best one")
	flag.IntVar(&o.rounds, "rounds", 3, "times that each is run")
	flag.IntVar(&o.prefill, "prefill", 512, "tokens of the prompt; 0 measures none")
	flag.StringVar(&o.decode, "decode", "128:1,2,8", "depths and the streams at each, such as \"128:1,2,8 2048:1\"")
	flag.StringVar(&o.flash, "flash", "auto,off", "settings of llama.cpp's flash attention, each an engine of its own: auto, on, off")
	flag.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "threads of each engine")
	flag.StringVar(&o.llamaArgs, "llamacpp-args", "", "more arguments for llamacpp_bench.py")
	flag.StringVar(&o.openvinoArg, "openvino-args", "", "more arguments for openvino_bench.py")
	flag.DurationVar(&o.limit, "limit", 10*time.Minute, "time after which a run of one engine is given up")
	out := flag.String("json", "", "file for all numbers")
	flag.Parse()
	o.models = flag.Args()
	if o.forebay == "" || len(o.models) == 0 || o.rounds < 1 || o.threads < 1 {
		fmt.Fprintln(os.Stderr, "usage: compare --forebay BINARY [flags] MODEL.gguf…; --rounds and --threads are at least 1")
		os.Exit(2)
	}
	if err := run(&o, *out); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(o *options, jsonFile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	jobs, err := parseJobs(o.prefill, o.decode)
	if err != nil {
		return err
	}
	engines, err := o.engines()
	if err != nil {
		return err
	}
	r := &record{Date: time.Now().UTC().Format(time.DateOnly), Command: command(), Rounds: o.rounds, Threads: o.threads}
	r.CPU, r.Flags = processor(os.DirFS("/"))
	load, _ := os.ReadFile("/proc/loadavg")
	r.Load, _, _ = strings.Cut(string(load), " ")
	for _, e := range engines {
		r.Engines = append(r.Engines, engineRecord{Name: e.name, Missing: e.missing(ctx)})
	}
	if missing := r.Engines[0].Missing; missing != "" {
		return fmt.Errorf("--forebay %s: %s", o.forebay, missing)
	}
	runErr := r.measure(ctx, o, engines, jobs)
	if len(r.Rows) == 0 {
		return runErr
	}
	r.judge()
	fmt.Print(r.markdown())
	if jsonFile != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(jsonFile, append(text, '\n'), 0o644)
		}
		runErr = errors.Join(runErr, err)
	}
	return runErr
}

// command returns the command line of this program, without the folders of files.
func command() string {
	words := []string{"go run ./bench/compare"}
	flag.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "forebay", "peers", "python", "json":
		default:
			value := f.Value.String()
			if strings.ContainsAny(value, " ") {
				value = strconv.Quote(value)
			}
			words = append(words, "--"+f.Name, value)
		}
	})
	for _, m := range flag.Args() {
		words = append(words, filepath.Base(m))
	}
	return strings.Join(words, " ")
}

// job is one run of an engine: an optional prompt, and decoding at one depth.
type job struct {
	prefill, depth int
	streams        []string // empty: no decode
}

// parseJobs reads depths with their streams. The first job includes the prompt.
func parseJobs(prefill int, decode string) (jobs []job, err error) {
	if prefill < 0 {
		return nil, fmt.Errorf("--prefill is %d; it must be 0 or more", prefill)
	}
	for word := range strings.FieldsSeq(decode) {
		depth, streams, ok := strings.Cut(word, ":")
		n, err := strconv.Atoi(depth)
		if err != nil || n < 1 || !ok {
			return nil, fmt.Errorf("--decode: %q is not a depth and streams such as 128:1,2,8", word)
		}
		j := job{depth: n, streams: strings.Split(streams, ",")}
		for _, s := range j.streams {
			if n, err := strconv.Atoi(s); err != nil || n < 1 {
				return nil, fmt.Errorf("--decode: %q in %q is not a number of streams", s, word)
			}
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 && prefill > 0 {
		jobs = []job{{}}
	}
	if len(jobs) == 0 {
		return nil, errors.New("there is nothing to measure: --prefill is 0 and --decode is empty")
	}
	jobs[0].prefill = prefill
	return jobs, nil
}
