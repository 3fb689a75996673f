// Package cli is the command line: what forebay does with its arguments.
//
// Goal: it reads flags, environment and file into one Config, builds what a
// command needs in start order, and stops it in reverse order. The files
// cmd_*.go hold one command or group of commands each; beside them stand the
// configuration, and the parts of a running process: front, socket directory,
// signals, log output.
//
// serve runs the gateway here and the engine as a child process of the same
// binary; gateway and engine each run one half, for two containers that share
// a socket.
//
// Non-goals: any decision about requests or models. Those belong to the
// packages that the commands call.
//
// Ownership: a console belongs to one run of a command. Nothing here reads the
// environment or the arguments by itself; main passes them in.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/internal/supervise"
)

// console holds everything outside the process that a command may use.
type console struct {
	in, out *os.File
	err     io.Writer
	records io.Writer // takes the access log
	environ []string
}

type command struct {
	name, args, summary string
	run                 func(c *console, args []string) error
}

func commands() []command {
	return []command{
		{"serve", "[flags]", "run gateway and engine (also without a command)", runServe},
		{"gateway", "--socket PATH [flags]", "run the gateway alone", runGateway},
		{"engine", "--socket PATH [flags]", "run the engine alone", runEngine},
		{"chat", "[TEXT]", "talk to a running Forebay", runChat},
		{"model info", "MODEL", "describe a model, and predict its speed here", runModelInfo},
		{"model logits", "MODEL --ids 1,2,3 -o OUT.f32 [--quantize TYPE] [--kv-type TYPE] [--kernels NAME]", "write the logits of tokens", runModelLogits},
		{"model embed", "MODEL --ids 1,2,3 -o OUT.f32 [--kernels NAME]", "write an embedding model's vector of tokens", runModelEmbed},
		{"model pull", "REF", "download a model of the Hugging Face Hub", runModelPull},
		{"model list", "[--json]", "list the downloaded models", runModelList},
		{"model rm", "REF", "remove a downloaded model", runModelRemove},
		{"model quantize", "IN OUT --type TYPE", "write a model with smaller weights", runModelQuantize},
		{"model tokenize", "MODEL", "turn texts, as lines of JSON, into token ids", runModelTokenize},
		{"model render", "MODEL", "turn conversations, as lines of JSON, into prompts", runModelRender},
		{"grammar test", "FILE.jsonl --tokenizer FILE [--json]", "hold JSON Schemas to valid and invalid instances, and time the masks", runGrammarTest},
		{"toolcalls test", "FILE.jsonl --tools FILE --json", "take answers of models apart: reasoning, content and tool calls", runToolCallsTest},
		{"bench engine", "MODEL", "measure prefill and decode of a model, without gateway and sockets", runBenchEngine},
		{"bench kernels", "", "measure kernels beside the limits of the machine", runBenchKernels},
		{"simulate", "--trace FILE", "play a trace of requests through the scheduler and through rivals", runSimulate},
		{"key new", "NAME --tenant TENANT [flags]", "make an API key, and show it once", runKeyNew},
		{"key list", "[--file PATH] [--json]", "list the keys of a key file", runKeyList},
		{"key revoke", "NAME [--file PATH]", "make a key worthless", runKeyRevoke},
		{"queue open", "CLASS [--admin ADDR]", "let a class accept and start requests", runQueueOpen},
		{"queue pause", "CLASS [--admin ADDR]", "let a class accept requests and start none", runQueuePause},
		{"queue drain", "CLASS [--admin ADDR]", "let a class refuse new requests and start the waiting ones", runQueueDrain},
		{"queue", "[--admin ADDR] [--json]", "show the requests that wait at a running Forebay, and why", runQueue},
		{"budget", "[TENANT] [--admin ADDR] [--json]", "show what tenants, keys and users have used of their limits, and have left", runBudget},
		{"upstream drain", "URL [--admin ADDR]", "keep new requests from a server that is relayed to", runUpstreamDrain},
		{"upstream open", "URL [--admin ADDR]", "let requests go to a drained server again", runUpstreamOpen},
		{"upstream", "[--admin ADDR] [--json]", "show the servers that a running Forebay relays to", runUpstream},
		{"cache warm", "FILE [--url URL] [--class CLASS]", "compute the prompts of a file, so that they are cached", runCacheWarm},
		{"cache pin", "FILE [--for TIME] [--url URL] [--class CLASS]", "compute the prompts of a file and keep them in memory", runCachePin},
		{"cache unpin", "FILE [--url URL] [--class CLASS]", "let pinned prompts go when their memory is needed", runCacheUnpin},
		{"cache", "[--admin ADDR] [--json]", "show what the cache of a running Forebay holds and saves, and its siblings", runCache},
		{"trace ls", "[--slow] [--failed] [flags]", "list running requests and the last ended ones", runTraceList},
		{"trace show", "ID", "show where a request's time went", runTraceShow},
		{"trace diff", "ID ID", "compare where the time of two requests went", runTraceDiff},
		{"trace neighbors", "ID", "list the requests that were in the same steps", runTraceNeighbors},
		{"trace export", "ID [--format perfetto|otlp|json] [-o FILE]", "export a request for other programs", runTraceExport},
		{"trace launches", "[flags]", "record every kernel launch of the next steps, for Perfetto", runTraceLaunches},
		{"trace watch", "[flags]", "print requests as they end", runTraceWatch},
		{"top", "[--once]", "show the live state of a running Forebay", runTop},
		{"control bootstrap", "envoy|grpc|forebay [--server ADDR]", "print a client's bootstrap for a control plane", runControlBootstrap},
		{"control status", "[--server ADDR] [--json]", "show what a control plane serves, and how far its clients are", runControlStatus},
		{"control diff", "--dir DIR [--server ADDR]", "compare a folder of policies with what is served", runControlDiff},
		{"control", "--dir DIR [flags]", "give policies to gateways, Envoy and gRPC clients over xDS", runControl},
		{"config check", "[FILE] [flags]", "check a configuration and report every mistake", runConfigCheck},
		{"config print", "[FILE] [flags]", "print the effective configuration", runConfigPrint},
		{"health", "[--url URL]", "exit 0 if a running Forebay is ready", runHealth},
		{"version", "", "print the version", runVersion},
	}
}

// Run runs one command and returns the exit status of the process. args are
// without the program's name; environ has the form of os.Environ.
func Run(args, environ []string, in, out, err *os.File) int {
	c := &console{in: in, out: out, err: err, records: out, environ: environ}
	return c.exitStatus(c.dispatch(args))
}

// dispatch runs the command that the arguments start with; flags alone mean serve.
func (c *console) dispatch(args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "help", "--help", "-h":
			return c.help(args[1:])
		case "--version", "-v":
			return runVersion(c, nil)
		}
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return runServe(c, args)
	}
	for _, cmd := range commands() {
		words := strings.Fields(cmd.name)
		if len(args) >= len(words) && strings.Join(args[:len(words)], " ") == cmd.name {
			err := cmd.run(c, args[len(words):])
			if errors.Is(err, flag.ErrHelp) {
				return errors.Join(err, c.list("\nCommands:\n\n", group(cmd.name)))
			}
			return err
		}
	}
	if of := group(args[0]); of != nil && len(args) == 2 && slices.Contains([]string{"help", "--help", "-help", "-h"}, args[1]) {
		return c.list(fmt.Sprintf("Usage: forebay %s COMMAND [flags]\n\n", args[0]), of)
	}
	return unknownCommand(args)
}

// group returns the commands of two words that begin with this one.
func group(name string) (of []command) {
	for _, cmd := range commands() {
		if strings.HasPrefix(cmd.name, name+" ") {
			of = append(of, cmd)
		}
	}
	return of
}

// unknownCommand returns the error for unknown arguments, with the nearest command.
func unknownCommand(args []string) error {
	if of := group(args[0]); of != nil && (len(args) == 1 || strings.HasPrefix(args[1], "-")) {
		var seconds []string
		for _, cmd := range of {
			seconds = append(seconds, strings.TrimPrefix(cmd.name, args[0]+" "))
		}
		return usageError(fmt.Sprintf("%s is followed by one of %s", args[0], strings.Join(seconds, ", ")))
	}
	given := args[0]
	if len(args) > 1 && !strings.HasPrefix(args[1], "-") {
		given += " " + args[1]
	}
	var names []string
	for _, cmd := range commands() {
		names = append(names, cmd.name)
	}
	near := conf.Nearest(args[0], names, 2)
	if near == "" {
		near = conf.Nearest(given, names, 3)
	}
	if near != "" {
		return usageError(fmt.Sprintf("there is no command %q; did you mean %q? forebay help lists them", given, near))
	}
	return usageError(fmt.Sprintf("there is no command %q; forebay help lists them", given))
}

// usageError is a mistake on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// hopelessError is a failure that a restart cannot mend.
type hopelessError struct{ error }

// deviceError says that a device failed, which a new process may use again.
type deviceError struct{ error }

// exitStatus prints err line by line, each with the program's name, and returns
// the exit status for it.
func (c *console) exitStatus(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var b strings.Builder
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(&b, "forebay:", strings.TrimSuffix(line, "\n"))
	}
	c.lastWord(b.String())
	switch {
	case errors.As(err, new(usageError)):
		return 2
	case errors.As(err, new(hopelessError)):
		return supervise.ExitHopeless
	case errors.As(err, new(deviceError)):
		return supervise.ExitDeviceFailed
	}
	return 1
}

// decouple puts a buffer of linesMax lines before each output, so that logging
// never waits for a slow reader. restore writes what is left and removes the buffers.
func (c *console) decouple(linesMax int) (restore func()) {
	plain := *c
	records, err := newOutlet(c.records, linesMax), newOutlet(c.err, linesMax)
	c.records, c.err = records, err
	return func() {
		*c = plain
		if n := records.close() + err.close(); n > 0 {
			c.lastWord(fmt.Sprintf("forebay: %d log lines were dropped, because nothing read the output\n", n))
		}
	}
}

// lastWord writes text to standard error, and gives up if nothing reads it soon.
func (c *console) lastWord(text string) {
	err := newOutlet(c.err, 1)
	io.WriteString(err, text)
	err.close()
}

// help prints all commands, or what one command or group of commands takes.
func (c *console) help(of []string) error {
	if len(of) > 0 && of[0] != "help" && !strings.HasPrefix(of[0], "-") {
		return c.dispatch(append(slices.Clone(of), "-h"))
	}
	if err := c.list("Usage: forebay [COMMAND] [flags]\n\n", commands()); err != nil {
		return err
	}
	_, err := io.WriteString(c.out, "\nforebay help COMMAND lists the flags of a command.\n")
	return err
}

// list prints commands under a title, and nothing if there are none.
func (c *console) list(title string, commands []command) error {
	if len(commands) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString(title)
	for _, cmd := range commands {
		fmt.Fprintf(&b, "  %-17s %s\n", cmd.name, cmd.summary)
	}
	_, err := io.WriteString(c.out, b.String())
	return err
}
