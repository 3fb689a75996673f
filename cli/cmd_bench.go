package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-io/forebay/bench/speed"
	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/machine"
	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/kernels"
)

// Limits of the benchmarks' flags.
const (
	benchRunsMax    = 1000
	benchTokensMax  = 1 << 20
	benchStreamsMax = 1024
	benchThreadsMax = 256
)

const benchEngineUsage = "bench engine MODEL [--prefill 512] [--depth 128] [--streams 1,2,8] [--runs 3] [--steps 24] [--batch 512] [--threads N] [--kernels SET] [--kv TYPE] [--device cpu|cuda|auto] [--device-id N] [--json]"

// engineBench holds the flags of bench engine.
type engineBench struct {
	prefill, runs, steps, batch, threads int
	depths, streams                      string
	kernels, kv                          string
	json                                 bool
}

// runBenchEngine measures a model as the scripts for other engines do.
func runBenchEngine(c *console, args []string) error {
	var cfg engine.Config
	conf.Fill(&cfg)
	set, b := newFlagSet(benchEngineUsage), engineBench{}
	set.IntVar(&b.prefill, "prefill", 512, "tokens of the prompt; 0 measures none")
	set.StringVar(&b.depths, "depth", "128", "tokens before those that are decoded; several, separated by commas; none leaves decoding out")
	set.StringVar(&b.streams, "streams", "1", "streams that are decoded together; several, separated by commas")
	set.IntVar(&b.runs, "runs", 3, "times that each is measured, after one that warms up")
	set.IntVar(&b.steps, "steps", 24, "decode steps in a run")
	set.IntVar(&b.batch, "batch", cfg.BatchTokensMax, "most tokens of a prompt in a step, as engine.batch_tokens_max")
	set.IntVar(&b.threads, "threads", 0, "threads that compute; 0 takes as many as the process may use CPUs")
	set.StringVar(&b.kernels, "kernels", "", "kernel set; empty takes the best one")
	set.StringVar(&b.kv, "kv", cfg.KVType, "type of keys and values, as engine.kv_type: f32, f16 or int8")
	set.BoolVar(&b.json, "json", false, "print JSON, an object a line")
	device := addDeviceFlags(set)
	path, err := c.oneModel(set, args)
	if err != nil {
		return err
	}
	o, err := b.options(c)
	if err != nil {
		return err
	}
	d, err := device.open(c)
	if err != nil {
		return err
	}
	defer d.close()
	if o.Device, o.DeviceName = d.device, d.name; d.device != nil {
		o.Memory = func() int { return 0 } // the device checks its own
	}
	if o.KVType, err = kernels.ParseKVType(b.kv); err != nil {
		return usageError("--kv: " + err.Error())
	}
	o.Version, o.Model, o.PageTokens = version, filepath.Base(path), cfg.PageTokens
	return b.run(c, path, o)
}

// options checks the flags.
func (b *engineBench) options(c *console) (o *speed.EngineOptions, err error) {
	for _, f := range []struct {
		name             string
		got, least, most int
	}{
		{"prefill", b.prefill, 0, benchTokensMax}, {"runs", b.runs, 1, benchRunsMax}, {"steps", b.steps, 1, benchTokensMax},
		{"batch", b.batch, 1, 1 << 16}, {"threads", b.threads, 0, benchThreadsMax},
	} {
		if f.got < f.least || f.got > f.most {
			return nil, usageError(fmt.Sprintf("--%s is %d; allowed are %d to %d", f.name, f.got, f.least, f.most))
		}
	}
	root := os.DirFS("/")
	o = &speed.EngineOptions{
		Prefill: b.prefill, Runs: b.runs, Steps: b.steps, Chunk: b.batch,
		Resident: func() int { return machine.Resident(root) }, Memory: func() int { return machine.Available(root) },
	}
	if b.depths != "none" {
		if o.Depths, err = parseCounts("depth", b.depths, 0, benchTokensMax); err != nil {
			return nil, err
		}
	}
	if o.Streams, err = parseCounts("streams", b.streams, 1, benchStreamsMax); err != nil {
		return nil, err
	}
	o.Set, err = c.kernelSet(b.kernels)
	return o, err
}

// benchTeam returns a team of threads workers, or of one for each CPU if threads is 0.
func benchTeam(threads int) *kernels.Team {
	return kernels.NewTeam(cmp.Or(threads, min(runtime.GOMAXPROCS(0), benchThreadsMax)))
}

// kernelSet returns the kernel set with that name, or the best one for "".
func (c *console) kernelSet(name string) (*kernels.Set, error) {
	for _, unknown := range unknownKernels(c.getenv(kernels.DisableEnv)) {
		fmt.Fprintf(c.err, "forebay: no kernel set is named %q in %s; there are %s\n", unknown, kernels.DisableEnv, strings.Join(kernelNames, ", "))
	}
	if name == "" {
		return kernels.Best(), nil
	}
	return kernels.Lookup(name)
}

// parseCounts reads whole numbers separated by commas.
func parseCounts(flag, list string, least, most int) (counts []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < least || n > most {
			return nil, usageError(fmt.Sprintf("--%s: %q is not a whole number from %d to %d", flag, text, least, most))
		}
		counts = append(counts, n)
	}
	return counts, nil
}

func (b *engineBench) run(c *console, path string, o *speed.EngineOptions) error {
	f, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	weights, err := f.Quantized("")
	if err != nil {
		return err
	}
	o.Team = benchTeam(b.threads)
	defer o.Team.Close()
	bench, err := speed.Load(weights, o)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer bench.Close()
	return bench.Run(linePrinter(c.out, b.json))
}

// linePrinter prints each result as a line of JSON, or as words.
func linePrinter(out io.Writer, asJSON bool) func(any) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		return func(line any) error { return encoder.Encode(speed.AsLine(line)) }
	}
	return func(line any) error { return printSpeed(out, line) }
}

// runBenchKernels measures operations against the machine's limits.
func runBenchKernels(c *console, args []string) error {
	set := newFlagSet("bench kernels [--types q8_0,q4_0] [--time 50ms] [--threads N] [--kernels SET] [--json]")
	types := set.String("types", "all", "types of weights to multiply with, separated by commas; none leaves them out")
	each := set.Duration("time", 50*time.Millisecond, "time of each measurement")
	threads := set.Int("threads", 0, "threads that compute, beside one alone; 0 takes as many as the process may use CPUs")
	name := set.String("kernels", "", "kernel set; empty takes the best one")
	asJSON := set.Bool("json", false, "print JSON, an object a line")
	rest, err := c.parse(set, args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return usageError(fmt.Sprintf("%q is not expected here", rest[0]))
	case *threads < 0 || *threads > benchThreadsMax:
		return usageError(fmt.Sprintf("--threads is %d; allowed are 0 to %d", *threads, benchThreadsMax))
	case *each < 0 || *each > time.Minute:
		return usageError(fmt.Sprintf("--time is %v; allowed are 0s to 1m", *each))
	}
	o := &speed.PartsOptions{Time: *each}
	if o.Types, err = parseTypes(*types); err != nil {
		return err
	}
	if o.Set, err = c.kernelSet(*name); err != nil {
		return err
	}
	o.Team = benchTeam(*threads)
	defer o.Team.Close()
	if !*asJSON {
		fmt.Fprintf(c.out, "kernels        %s\n", o.Set.Name)
	}
	return speed.Parts(o, linePrinter(c.out, *asJSON))
}

func parseTypes(list string) (types []kernels.Type, err error) {
	switch list {
	case "all":
		return speed.Types, nil
	case "none":
		return nil, nil
	}
	var names []string
	for _, t := range speed.Types {
		names = append(names, t.String())
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.Index(names, strings.ToUpper(strings.TrimSpace(name)))
		if i < 0 {
			return nil, usageError(fmt.Sprintf("--types: there is no type %q; there are %s", name, strings.Join(names, ", ")))
		}
		types = append(types, speed.Types[i])
	}
	return types, nil
}
