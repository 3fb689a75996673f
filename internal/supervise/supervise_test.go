package supervise

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary is its own child: CHILD_DOES names what it does.
func TestMain(m *testing.M) {
	switch os.Getenv("CHILD_DOES") {
	case "":
		os.Exit(m.Run())
	case "sleep":
		EndWithParent(os.Stdin, func() { os.Exit(3) })
		time.Sleep(time.Minute)
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("deaf")
		time.Sleep(time.Minute)
	case "fail":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		<-asked
		fmt.Fprintln(os.Stderr, "forebay: the disk is full")
		os.Exit(1)
	case "hopeless":
		fmt.Fprintln(os.Stderr, "forebay: no such model")
		os.Exit(ExitHopeless)
	case "device":
		fmt.Println("started with", strings.Join(os.Args[1:], " "))
		os.Exit(ExitDeviceFailed)
	case "panic":
		panic("out of weights")
	}
}

func itself() string { return os.Args[0] }

// run supervises a child that does one of the above, until stop is called.
func run(t *testing.T, does string, cfg Config, out io.Writer) (s *Supervisor, pids chan int, stop func() error) {
	t.Helper()
	pids = make(chan int, 100)
	s = New(cfg, Child{Path: itself, Env: []string{"CHILD_DOES=" + does}, Output: out, Prefix: "engine: ", Log: slog.New(slog.NewTextHandler(out, nil)), Started: func(pid int) { pids <- pid }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { stop() })
	return s, pids, stop
}

func TestKilledChildIsBackAndTheLastOneEnds(t *testing.T) {
	s, pids, stop := run(t, "sleep", Config{}, io.Discard)
	first := <-pids
	if s.Reason() != "the engine is loading its model" {
		t.Errorf("reason before any end: %q", s.Reason())
	}
	s.Alive(time.Now())
	if s.Reason() != "" {
		t.Errorf("reason while it works: %q", s.Reason())
	}
	late := time.Now()
	syscall.Kill(first, syscall.SIGKILL)
	second := <-pids
	s.Alive(late) // heard of the first one, so it says nothing about the second
	if !strings.Contains(s.Reason(), "signal: killed") {
		t.Errorf("reason is %q, want it to name the signal", s.Reason())
	}
	if group, _ := syscall.Getpgid(second); group == syscall.Getpgrp() {
		t.Error("the child shares our process group, so that Ctrl-C reaches it twice")
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	for _, pid := range []int{first, second} {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			t.Errorf("process %d is still there (or a zombie): %v", pid, err)
		}
	}
}

func TestHopelessFirstChildEndsRun(t *testing.T) {
	var out bytes.Buffer
	err := New(Config{}, Child{Path: itself, Env: []string{"CHILD_DOES=hopeless"}, Output: &out, Prefix: "engine: "}).Run(t.Context())
	if err == nil || err.Error() != "no such model" {
		t.Errorf("got %v, want the child's own words", err)
	}
	if out.String() != "" {
		t.Errorf("passed on %q, which the caller prints", out.String())
	}
}

func TestMissingProgramEndsRun(t *testing.T) {
	if err := New(Config{}, Child{Path: func() string { return "/does/not/exist" }, Output: io.Discard}).Run(t.Context()); err == nil {
		t.Error("no error")
	}
}

// What the child printed may hold paths, so it goes to the log and not to clients.
func TestCrashLoopIsTheReason(t *testing.T) {
	var log bytes.Buffer
	s, pids, stop := run(t, "panic", Config{RestartWaitMin: time.Millisecond, RestartWaitMax: time.Hour, CrashLoopExits: 3}, &log)
	for range 3 {
		<-pids
	}
	for !strings.Contains(s.Reason(), "keeps ending, 3 times now, at last with exit status 2; it starts again in ") {
		time.Sleep(time.Millisecond)
	}
	if stop(); !strings.Contains(log.String(), `cause="exit status 2: panic: out of weights`) || strings.Contains(s.Reason(), "out of weights") {
		t.Errorf("the panic belongs into the log alone: %s", &log)
	}
}

func TestHungChildIsReplaced(t *testing.T) {
	for name, wasReady := range map[string]bool{"never ready": false, "ready before": true} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{LoadLimit: 100 * time.Millisecond, HangLimit: time.Hour}
			if wasReady {
				cfg = Config{LoadLimit: time.Hour, HangLimit: 100 * time.Millisecond}
			}
			s, pids, _ := run(t, "sleep", cfg, io.Discard)
			first := <-pids
			if wasReady {
				s.Alive(time.Now())
				for !strings.Contains(s.Reason(), "no progress") {
					time.Sleep(time.Millisecond)
				}
			}
			<-pids
			if err := syscall.Kill(first, 0); err != syscall.ESRCH {
				t.Errorf("the hung child is still there: %v", err)
			}
		})
	}
}

func TestWatchdog(t *testing.T) {
	d := watchdog{loadLimit: time.Hour, hangLimit: 20 * time.Second}
	var never time.Time
	at := time.Unix(1, 0)
	for i, c := range []struct {
		alive         time.Time
		silent, limit time.Duration
	}{
		{never, time.Second, time.Hour},
		{never, 2 * time.Second, time.Hour},
		{at, 0, 20 * time.Second},
		{at, time.Second, 20 * time.Second},
		{at.Add(1), 0, 20 * time.Second},
		{at.Add(1), time.Second, 20 * time.Second},
	} {
		if silent, limit := d.tick(c.alive); silent != c.silent || limit != c.limit {
			t.Errorf("tick %d: %v of %v, want %v of %v", i+1, silent, limit, c.silent, c.limit)
		}
	}
}

func TestDeafChildIsKilled(t *testing.T) {
	heard, out := io.Pipe()
	_, _, stop := run(t, "ignore", Config{StopLimit: 50 * time.Millisecond}, out)
	heard.Read(make([]byte, 100)) // it ignores SIGTERM from here on
	go io.Copy(io.Discard, heard)
	if err := stop(); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("got %v", err)
	}
}

// What goes wrong while the last child ends is not lost.
func TestChildThatFailsToEndWell(t *testing.T) {
	heard, out := io.Pipe()
	_, _, stop := run(t, "fail", Config{StopLimit: time.Minute}, out)
	if _, err := heard.Read(make([]byte, 100)); err != nil { // it says that it is ready
		t.Fatal(err)
	}
	go io.Copy(io.Discard, heard)
	if err := stop(); err == nil || err.Error() != "exit status 1: the disk is full" {
		t.Errorf("got %v, want the child's status and words", err)
	}
}

func TestEndWithParent(t *testing.T) {
	stdin, parent := io.Pipe()
	ended := make(chan bool)
	EndWithParent(stdin, func() { close(ended) })
	select {
	case <-ended:
		t.Fatal("ended while the parent lives")
	default:
	}
	parent.Close()
	<-ended
}

func TestBackoff(t *testing.T) {
	b := backoff{waitMin: 200 * time.Millisecond, waitMax: time.Second, stableAfter: time.Minute, crashLoopExits: 5}
	at := time.Unix(0, 0)
	for i, c := range []struct{ ran, want time.Duration }{
		{time.Second, 0},
		{time.Second, 200 * time.Millisecond},
		{time.Second, 400 * time.Millisecond},
		{time.Second, 800 * time.Millisecond},
		{time.Second, time.Second}, // a crash loop
		{time.Second, time.Second},
		{time.Minute, 0}, // stable, so it counts anew
		{time.Second, 200 * time.Millisecond},
	} {
		if got := b.next(at, at.Add(c.ran), 0); got != c.want {
			t.Errorf("end %d: wait %v, want %v", i+1, got, c.want)
		}
	}
	b.exits = 1
	if got := b.next(at, at, 0.999); got < 150*time.Millisecond || got > 151*time.Millisecond {
		t.Errorf("jitter gives %v, want three quarters", got)
	}
	b.exits, b.crashLoopExits = 1000, 1<<30
	if got := b.next(at, at, 0); got != time.Second {
		t.Errorf("after very many ends: %v", got)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := &lines{out: &out, prefix: "e: ", limit: 10}
	io.WriteString(l, "one\ntw")
	io.WriteString(l, "o\n{\"a\":1}\n\n"+strings.Repeat("x", 9))
	io.WriteString(l, strings.Repeat("x", 1<<20))
	if cap(l.line) > 1000 {
		t.Errorf("holds %d bytes of an endless line", cap(l.line))
	}
	io.WriteString(l, "\npanic: a\npanic: b\nlast")
	if got := l.end(); got != "panic: a" {
		t.Errorf("verdict %q", got)
	}
	want := "e: one\ne: two\n{\"a\":1}\ne: \ne: xxxxxxxxxx … (cut)\ne: panic: a\ne: panic: b\ne: last\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
	if l.end() != "" {
		t.Error("the verdict is not forgotten")
	}
}

// TestDeviceFailed: a start after a failed device has the arguments for that, and the reason says what it was.
func TestDeviceFailed(t *testing.T) {
	var out bytes.Buffer
	starts := make(chan int, 100)
	s := New(Config{RestartWaitMin: time.Millisecond}, Child{
		Path: itself, Args: []string{"--plain"}, AfterDeviceFailed: []string{"--after"}, Env: []string{"CHILD_DOES=device"},
		Output: &out, Log: slog.New(slog.NewTextHandler(&out, nil)), Started: func(pid int) { starts <- pid },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for range 3 { // the third start is after the second end
		<-starts
	}
	reason := s.Reason()
	cancel()
	<-done
	if text := out.String(); !strings.HasPrefix(text, "started with --plain\n") || !strings.Contains(text, "started with --plain --after\n") || !strings.Contains(reason, "its GPU failed") {
		t.Errorf("reason %q, output:\n%s", reason, text)
	}
}
