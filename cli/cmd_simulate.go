package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/bench/sim"
)

// simulation holds the flags of simulate.
type simulation struct {
	trace, loads, policies string
	seeds, requests        int
	goal                   time.Duration
	slack                  float64
	engine, calibrate      string
	calibrateTime          time.Duration
	csv, svg               string
	json, compare          bool
}

const simulateUsage = "simulate --trace FILE|NAME [--load 0.95] [--seeds 5] [--policies a,b] [--engine FILE|NAME] [--compare] [--csv FILE] [--svg FILE] [--json]"

// runSimulate plays a trace through the scheduler and a model of an engine.
func runSimulate(c *console, args []string) error {
	set := newFlagSet(simulateUsage)
	var s simulation
	set.StringVar(&s.trace, "trace", "", "a file as Azure (CSV) or Mooncake (JSON) publish theirs, perhaps packed by gzip, or a made one: "+strings.Join(sim.Generators(), ", "))
	set.StringVar(&s.loads, "load", "0.95", "work that arrives, in units of what the engine can do of it when always busy; several, separated by commas, give a curve; native leaves the times as they are")
	set.IntVar(&s.seeds, "seeds", 5, "runs, each with other noise and, of a made trace, other requests")
	set.StringVar(&s.policies, "policies", strings.Join(sim.Policies(), ","), "policies to compare, the product's own first")
	set.IntVar(&s.requests, "requests", 0, "requests of a made trace, 5000 if 0, or the first ones of a file, all if 0")
	set.DurationVar(&s.goal, "goal", 2*time.Second, "time to first token that interactive requests want")
	set.Float64Var(&s.slack, "slack", 2, "times a request's own prefill that are added to its goal")
	set.StringVar(&s.engine, "engine", "", "JSON file of the engine, as --calibrate writes it, or one of "+strings.Join(sim.Engines(), ", ")+"; empty takes the first")
	set.StringVar(&s.calibrate, "calibrate", "", "serve this model here under load of its own and write its engine file to --engine, or print it; empty is the embedded demo model; nothing is simulated")
	set.DurationVar(&s.calibrateTime, "calibrate-time", time.Minute, "how long --calibrate measures")
	set.BoolVar(&s.compare, "compare", false, "simulate the runs that bench/overload --record wrote, and print both side by side; they must be near. --trace is the folder, or files of one load separated by commas")
	set.StringVar(&s.csv, "csv", "", "file for all numbers, by class and tenant too")
	set.StringVar(&s.svg, "svg", "", "file for a plot")
	set.BoolVar(&s.json, "json", false, "print JSON, an object a line for each load")
	rest, err := c.parse(set, args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return usageError(fmt.Sprintf("simulate takes flags alone; %q is not one; write forebay %s", rest[0], simulateUsage))
	case calibrates(set):
		return c.calibrate(s.calibrate, s.engine, s.calibrateTime)
	case s.trace == "":
		return usageError("simulate needs --trace, a file or one of " + strings.Join(sim.Generators(), ", "))
	}
	return s.run(c)
}

// calibrates tells that --calibrate was given.
func calibrates(set *flag.FlagSet) (given bool) {
	set.Visit(func(f *flag.Flag) { given = given || f.Name == "calibrate" })
	return given
}

func (s *simulation) run(c *console) error {
	if s.compare {
		return s.check(c)
	}
	loads, err := parseLoads(s.loads)
	if err != nil {
		return err
	}
	source, err := s.source()
	if err != nil {
		return err
	}
	e, err := s.readEngine()
	if err != nil {
		return err
	}
	o := sim.Options{Engine: e, Policies: strings.Split(s.policies, ","), Seeds: s.seeds, Goal: s.goal, Slack: s.slack, Source: source}
	var results []*sim.Result
	for _, load := range loads {
		o.Load = load
		result, err := sim.Compare(o)
		if err != nil {
			return err
		}
		results = append(results, result)
		if err := s.print(c, result, len(results) > 1); err != nil {
			return err
		}
	}
	return s.write(results)
}

// check compares the recorded runs of --trace with their simulation.
func (s *simulation) check(c *console) error {
	e, err := s.readEngine()
	if err != nil {
		return err
	}
	all, err := s.recordings(c)
	if err != nil {
		return err
	}
	check, err := sim.CheckRecordings(all, sim.Options{Engine: e, Seeds: s.seeds, Goal: s.goal, Slack: s.slack})
	if err != nil {
		return err
	}
	if err := check.WriteTable(c.out); err != nil {
		return err
	}
	if check.Far() {
		return errors.New("the simulation is far from the run: calibrate the engine again, on the same machine under the same load")
	}
	return nil
}

// recordings reads the runs of the folder in --trace, or the files there, which are runs
// of one load.
func (s *simulation) recordings(c *console) ([]sim.Recording, error) {
	if info, err := os.Stat(s.trace); err == nil && info.IsDir() {
		all, others, err := sim.ReadRecordings(os.DirFS(s.trace))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.trace, err)
		}
		if others > 0 {
			fmt.Fprintf(c.err, "forebay: %d runs are left out: of other servers, beside a backlog or busy loops\n", others)
		}
		return all, nil
	}
	var one sim.Recording
	for name := range strings.SplitSeq(s.trace, ",") {
		t, err := readTrace(name)
		if err != nil {
			return nil, err
		}
		one.Traces = append(one.Traces, t.Head(s.requests))
	}
	return []sim.Recording{one}, nil
}

func readTrace(name string) (*sim.Trace, error) {
	return readFile(name, func(r io.Reader) (*sim.Trace, error) { return sim.Read(r, filepath.Base(name)) })
}

func (s *simulation) readEngine() (*sim.Engine, error) {
	if s.engine == "" {
		return sim.DefaultEngine(), nil
	}
	if e := sim.NamedEngine(s.engine); e != nil {
		return e, nil
	}
	e, err := readFile(s.engine, sim.ReadEngine)
	if err != nil {
		err = fmt.Errorf("--engine: %w; named ones are %s", err, strings.Join(sim.Engines(), ", "))
	}
	return e, err
}

// print prints one comparison as soon as it is ready.
func (s *simulation) print(c *console, r *sim.Result, more bool) error {
	if s.json {
		return json.NewEncoder(c.out).Encode(r)
	}
	if more {
		fmt.Fprintln(c.out)
	}
	return r.WriteTable(c.out)
}

func (s *simulation) write(results []*sim.Result) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer, []*sim.Result) error
	}{{s.csv, sim.WriteCSV}, {s.svg, sim.WriteSVG}} {
		if f.name == "" {
			continue
		}
		out, err := os.Create(f.name)
		if err != nil {
			return err
		}
		err = f.write(out, results)
		if closed := out.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// source returns a function that gives the trace for a seed.
func (s *simulation) source() (func(seed uint64) (*sim.Trace, error), error) {
	const made = 5000
	switch {
	case s.requests < 0 || s.requests > sim.RequestsMax:
		return nil, usageError(fmt.Sprintf("--requests: %d; allowed are 0 to %d", s.requests, sim.RequestsMax))
	case slices.Contains(sim.Generators(), s.trace):
		n := s.requests
		if n == 0 {
			n = made
		}
		return func(seed uint64) (*sim.Trace, error) { return sim.Generate(s.trace, n, seed) }, nil
	}
	t, err := readTrace(s.trace)
	if err != nil {
		if os.IsNotExist(err) {
			err = fmt.Errorf("%w; made ones are %s", err, strings.Join(sim.Generators(), ", "))
		}
		return nil, err
	}
	t = t.Head(s.requests)
	return func(uint64) (*sim.Trace, error) { return t, nil }, nil
}

// readFile opens a file and decodes it with read.
func readFile[T any](name string, read func(io.Reader) (T, error)) (value T, err error) {
	f, err := os.Open(name)
	if err != nil {
		return value, err
	}
	defer f.Close()
	return read(f)
}

// parseLoads reads loads separated by commas; native gives 0.
func parseLoads(list string) ([]float64, error) {
	var loads []float64
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "native" {
			loads = append(loads, 0)
			continue
		}
		load, err := strconv.ParseFloat(text, 64)
		if err != nil || !(load > 0 && load <= sim.LoadMax) {
			return nil, usageError(fmt.Sprintf("--load: %q is not native, nor a number above 0 and up to %d", text, sim.LoadMax))
		}
		loads = append(loads, load)
	}
	return loads, nil
}
