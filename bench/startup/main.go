// Startup measures a start on a fresh machine: the time from starting the binary
// until it is ready and until the first token of a streamed answer, and the
// resident memory of gateway and engine, idle and with many streams.
//
//	go build -o /tmp/forebay . && go run ./bench/startup /tmp/forebay
//	go run ./bench/startup --model MODEL.gguf /tmp/forebay
//
// The second command measures starts with that model, with and without a repack
// image in turns.
//
// It runs on Linux only, because it reads /proc.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
)

func main() {
	runs := flag.Int("runs", 5, "starts to measure")
	streams := flag.Int("streams", 32, "streams that run at once")
	model := flag.String("model", "", "model to start with and without a repack image")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: startup [--runs N] [--streams N | --model MODEL] FOREBAY_BINARY")
		os.Exit(2)
	}
	if *model != "" {
		if err := compareImage(flag.Arg(0), *model, *runs); err != nil {
			fmt.Fprintln(os.Stderr, "startup:", err)
			os.Exit(1)
		}
		return
	}
	var all []sample
	for range *runs {
		s, err := measure(flag.Arg(0), *streams)
		if err != nil {
			fmt.Fprintln(os.Stderr, "startup:", err)
			os.Exit(1)
		}
		all = append(all, s)
	}
	report(all, *streams)
}

// sample is the measurement of one start. Memory is in bytes.
type sample struct {
	ready, firstToken         time.Duration
	gatewayIdle, engineIdle   int
	gatewayBusy, engineBusy   int
	allStreams, firstOfStream time.Duration
}

func measure(binary string, streams int) (s sample, err error) {
	p, err := start(binary)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	listen, began, cmd := p.listen, p.began, p.cmd
	s.ready = p.ready
	if err := ask(listen, 8, func() { s.firstToken = time.Since(began) }); err != nil {
		return s, err
	}
	s.gatewayIdle, s.engineIdle = memory(cmd.Process.Pid)
	return s, s.load(listen, cmd.Process.Pid, streams)
}

// process is a server that is ready.
type process struct {
	cmd    *exec.Cmd
	listen string
	log    bytes.Buffer
	began  time.Time
	ready  time.Duration
}

// start starts a server and waits until it is ready.
func start(binary string, args ...string) (*process, error) {
	p := &process{listen: ports.MustAddress(), began: time.Now()}
	p.cmd = exec.Command(binary, append([]string{"serve", "--listen", p.listen, "--admin", ports.MustAddress()}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for {
		r, err := http.Get("http://" + p.listen + "/readyz")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				p.ready = time.Since(p.began)
				return p, nil
			}
		}
		if time.Since(p.began) > 30*time.Second {
			err := errors.Join(errors.New("not ready within 30s"), p.stop())
			return nil, fmt.Errorf("%w\n%s", err, p.log.Bytes())
		}
		time.Sleep(time.Millisecond)
	}
}

// stop ends the server; its log comes with an error.
func (p *process) stop() error {
	if err := errors.Join(p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Wait()); err != nil {
		return fmt.Errorf("%w\n%s", err, p.log.Bytes())
	}
	return nil
}

// load runs the streams and reads the memory after all have begun to answer.
func (s *sample) load(listen string, pid, streams int) error {
	var wg, begun sync.WaitGroup
	errs := make([]error, streams)
	begun.Add(streams)
	for i := range streams {
		wg.Go(func() {
			first := sync.OnceFunc(begun.Done)
			defer first() // also if the stream fails before its first token
			errs[i] = ask(listen, 400, first)
		})
	}
	began := time.Now()
	begun.Wait()
	s.firstOfStream = time.Since(began)
	s.gatewayBusy, s.engineBusy = memory(pid)
	wg.Wait()
	s.allStreams = time.Since(began)
	return errors.Join(errs...)
}

// ask streams one answer of up to tokens tokens and calls first at the first text.
func ask(listen string, tokens int, first func()) error {
	body := fmt.Sprintf(`{"model":"forebay-demo","stream":true,"ignore_eos":true,"max_tokens":%d,"messages":[{"role":"user","content":"Tell me a story about a fox in the forest."}]}`, tokens)
	r, err := http.Post("http://"+listen+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1000))
		return fmt.Errorf("%s: %s", r.Status, text)
	}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "data: [DONE]":
			return nil
		case strings.Contains(line, `"content":"`) && !strings.Contains(line, `"content":""`):
			first()
		}
	}
	return errors.Join(lines.Err(), errors.New("the stream ended without [DONE]"))
}

// memory returns the resident memory of the process and of its only child, in
// bytes.
func memory(pid int) (parent, child int) {
	parent = resident(pid)
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		stat, _ := os.ReadFile(path)
		// pid (comm) state ppid …
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			id, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			child += resident(id)
		}
	}
	return parent, child
}

func resident(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if fields := strings.Fields(string(text)); len(fields) > 1 {
		pages, _ := strconv.Atoi(fields[1])
		return pages * os.Getpagesize()
	}
	return 0
}

func report(all []sample, streams int) {
	row := func(name string, of func(sample) float64, unit string) {
		values := make([]float64, len(all))
		for i, s := range all {
			values[i] = of(s)
		}
		slices.Sort(values)
		fmt.Printf("| %s | %.3g %s | %.3g–%.3g |\n", name, values[len(values)/2], unit, values[0], values[len(values)-1])
	}
	ms := func(of func(sample) time.Duration) func(sample) float64 {
		return func(s sample) float64 { return float64(of(s).Microseconds()) / 1000 }
	}
	mib := func(of func(sample) int) func(sample) float64 {
		return func(s sample) float64 { return float64(of(s)) / (1 << 20) }
	}
	fmt.Printf("| %d starts | median | range |\n|---|--:|--:|\n", len(all))
	row("start to ready", ms(func(s sample) time.Duration { return s.ready }), "ms")
	row("start to first token", ms(func(s sample) time.Duration { return s.firstToken }), "ms")
	row("gateway RSS, idle", mib(func(s sample) int { return s.gatewayIdle }), "MiB")
	row("engine RSS, idle", mib(func(s sample) int { return s.engineIdle }), "MiB")
	n := strconv.Itoa(streams)
	row("gateway RSS, "+n+" streams", mib(func(s sample) int { return s.gatewayBusy }), "MiB")
	row("engine RSS, "+n+" streams", mib(func(s sample) int { return s.engineBusy }), "MiB")
	row("first token on all of "+n+" streams", ms(func(s sample) time.Duration { return s.firstOfStream }), "ms")
	row("400 tokens on all of "+n+" streams", ms(func(s sample) time.Duration { return s.allStreams }), "ms")
}
