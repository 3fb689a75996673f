package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/bench/speed"
)

// engine is an inference engine that can be measured.
type engine struct {
	name string
	// try is a command that succeeds if the engine can run.
	try []string
	// command is the arguments that do a job.
	command func(model string, j job) []string
}

// llamaFlash are the settings of llamacpp_bench.py and how their engines are named.
var llamaFlash = map[string]struct{ name, value string }{
	"auto": {"llama.cpp", "-1"}, "on": {"llama.cpp, flash on", "1"}, "off": {"llama.cpp, flash off", "0"},
}

// engines lists this engine and the others; it is the first.
func (o *options) engines() ([]engine, error) {
	threads := strconv.Itoa(o.threads)
	all := []engine{{
		name: "forebay", try: []string{o.forebay, "version"},
		command: func(model string, j job) []string {
			args := []string{o.forebay, "bench", "engine", model, "--json", "--threads", threads, "--prefill", strconv.Itoa(j.prefill)}
			if o.kernels != "" {
				args = append(args, "--kernels", o.kernels)
			}
			if len(j.streams) == 0 {
				return append(args, "--depth", "none")
			}
			return append(args, "--depth", strconv.Itoa(j.depth), "--streams", strings.Join(j.streams, ","))
		},
	}}
	script := func(name, module, file, more string) engine {
		path := filepath.Join(o.peers, file)
		return engine{
			name: name, try: []string{o.python, "-c", "import os, sys, " + module + "; os.path.exists(sys.argv[1]) or sys.exit('there is no ' + sys.argv[1])", path},
			command: func(model string, j job) []string {
				args := []string{o.python, path, model, "--threads", threads, "--prefill", strconv.Itoa(j.prefill)}
				args = append(args, strings.Fields(more)...)
				if len(j.streams) > 0 {
					args = append(args, "--depth", strconv.Itoa(j.depth))
				}
				return append(append(args, "--streams"), j.streams...)
			},
		}
	}
	for setting := range strings.SplitSeq(o.flash, ",") {
		flash, ok := llamaFlash[setting]
		if !ok {
			return nil, fmt.Errorf("--flash: there is no setting %q; there are auto, on, off", setting)
		}
		all = append(all, script(flash.name, "llama_cpp", "llamacpp_bench.py", "--flash "+flash.value+" "+o.llamaArgs))
	}
	return append(all, script("OpenVINO GenAI", "openvino_genai", "openvino_bench.py", o.openvinoArg)), nil
}

// missing returns why the engine cannot run; empty if it can.
func (e *engine) missing(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, e.try[0], e.try[1:]...)
	said, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	if last := lastLine(said); last != "" {
		return last
	}
	return err.Error()
}

// run does a job and parses the engine's output.
func (e *engine) run(ctx context.Context, o *options, model string, j job) (*speed.Results, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	args := e.command(model, j)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("given up: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, errors.New(strings.TrimSpace(lastLine(said.Bytes()) + " (" + err.Error() + ")"))
	}
	return speed.Parse(bytes.NewReader(out))
}

// lastLine returns the last line that is not empty, which usually says why a
// program failed.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// measure runs all jobs, round by round. It records an engine's failures as
// results, and returns an error only if it is interrupted.
func (r *record) measure(ctx context.Context, o *options, engines []engine, jobs []job) error {
	for round := range o.rounds {
		for _, model := range o.models {
			for _, j := range jobs {
				for i := range engines {
					at := (i + round) % len(engines)
					if r.Engines[at].Missing != "" {
						continue
					}
					results, err := engines[at].run(ctx, o, model, j)
					if ctx.Err() != nil {
						return fmt.Errorf("interrupted in round %d: %w", round+1, context.Cause(ctx))
					}
					fmt.Fprintf(o.progress, "round %d of %d, %s, %s\n", round+1, o.rounds, filepath.Base(model), r.take(at, round, filepath.Base(model), j, results, err))
				}
			}
		}
	}
	return nil
}

// processor returns the name and flags of the first processor, like lscpu.
func processor(root fs.FS) (name string, flags []string) {
	text, _ := fs.ReadFile(root, "proc/cpuinfo")
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		key, value, _ := strings.Cut(in.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			name = strings.TrimSpace(value)
		case "flags", "Features":
			return name, strings.Fields(value)
		}
	}
	return name, nil
}
