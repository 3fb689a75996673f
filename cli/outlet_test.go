package cli

import (
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/forebay-io/forebay/internal/supervise"
)

func TestOutletDoesNotWait(t *testing.T) {
	const linesMax = 100
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe() // nobody reads
		o := newOutlet(write, linesMax)
		io.WriteString(o, "first\n")
		synctest.Wait()
		for range linesMax + 5 {
			io.WriteString(o, "line\n")
		}
		if n := o.dropped.Load(); n != 5 {
			t.Errorf("%d dropped, want 5", n)
		}
		if n := o.close(); n != linesMax+5 {
			t.Errorf("%d dropped in the end, want all but the one that is being written", n)
		}
		read.Close()
	})
}

func TestOutletPassesEverything(t *testing.T) {
	var got strings.Builder
	o := newOutlet(&got, 10)
	io.WriteString(o, "a\n")
	io.WriteString(o, "b\n")
	if n := o.close(); n != 0 || got.String() != "a\nb\n" {
		t.Errorf("%d dropped, %q", n, got.String())
	}
}

// fullPipe is an output whose reader does not read.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	if _, err := write.Write(make([]byte, 1<<16)); err != nil { // as much as a pipe holds
		t.Fatal(err)
	}
	return write
}

func TestErrorsThatNobodyReadsKeepTheirStatus(t *testing.T) {
	t.Parallel()
	for want, args := range map[int][]string{
		2:                      {"nonsense"},
		1:                      {"serve", "--model", "/nowhere/x.gguf"},
		supervise.ExitHopeless: {"engine", "--socket", "/does/not/exist/" + strings.Repeat("x", 200)},
	} {
		p := prepare(t, args...)
		full := fullPipe(t)
		p.cmd.Stdout, p.cmd.Stderr = full, full
		p.begin()
		if got := p.exit(); got != want {
			t.Errorf("%v: exit status %d, want %d", args, got, want)
		}
	}
}

// A reader of our outputs may stop to read.
func TestReaderOfTheLogStalls(t *testing.T) {
	t.Parallel()
	full := fullPipe(t)
	p := prepare(t, "serve")
	p.cmd.Stdout, p.cmd.Stderr = full, full
	p.begin()
	p.waitReady()
	for range 3 {
		if a := p.ask(chatBody("Hello!", nil)); a.status != http.StatusOK {
			t.Errorf("status %d", a.status)
		}
	}
	syscall.Kill(p.enginePid(), syscall.SIGKILL)
	eventually(t, "nothing runs", func() bool { return p.metrics()["forebay_requests_running"] == "0" })
	p.waitReady()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.exit(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
