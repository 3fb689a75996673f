package cli

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// Whoever reads our outputs may go away: the lines are lost, and nothing else.
func TestReaderOfTheLogGoesAway(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	p := prepare(t, "serve", "--log-level", "debug")
	p.cmd.Stdout, p.cmd.Stderr = write, write
	p.begin()
	p.waitReady()
	for range 3 {
		if a := p.ask(chatBody("Hello!", nil)); a.status != http.StatusOK {
			t.Errorf("status %d", a.status)
		}
	}
	engine := p.enginePid()
	syscall.Kill(engine, syscall.SIGKILL)
	p.nextEngine(engine)
	p.waitReady()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.exit(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// nextEngine waits for the successor of the engine that was.
func (p *process) nextEngine(was int) (pid int) {
	p.t.Helper()
	eventually(p.t, "another engine runs", func() bool {
		pids := p.children()
		if len(pids) != 1 || pids[0] == was {
			return false
		}
		pid = pids[0]
		return true
	})
	return pid
}

func TestHungEngineIsReplaced(t *testing.T) {
	t.Parallel()
	p := serve(t, "--supervise.hang_limit", "3s")
	hung := p.enginePid()
	syscall.Kill(hung, syscall.SIGSTOP)
	p.nextEngine(hung)
	p.waitReady()
	if a := p.ask(chatBody("Hello!", nil)); a.status != http.StatusOK {
		t.Errorf("after that: %+v", a)
	}
	for _, want := range []string{"the engine is killed: it made no progress for 3s", "it starts again at once", "the engine is lost", "the engine is back"} {
		if !strings.Contains(p.output(), want) {
			t.Errorf("the log has no %q", want)
		}
	}
}

// An upgrade may replace the file of the program that runs.
func TestEngineRestartsAfterItsProgramIsGone(t *testing.T) {
	t.Parallel()
	image, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "forebay")
	if err := os.WriteFile(copied, image, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"replaced": func() error {
			other := copied + ".new"
			return errors.Join(os.WriteFile(other, []byte("#!/bin/false\n"), 0o700), os.Rename(other, copied))
		},
		"removed": func() error { return os.Remove(copied) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(copied, image, 0o700); err != nil {
				t.Fatal(err)
			}
			p := prepare(t, "serve")
			p.cmd.Path = copied
			p.begin()
			p.waitReady()
			if err := change(); err != nil {
				t.Fatal(err)
			}
			before := p.enginePid()
			syscall.Kill(before, syscall.SIGKILL)
			after := p.nextEngine(before)
			p.waitReady()
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", after)); !strings.HasPrefix(string(line), "forebay\x00engine\x00") {
				t.Errorf("it is listed as %q", line)
			}
		})
	}
}

func TestRunDirsOfTheDeadAreSwept(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"forebay-other", "forebay-0755"} {
		if err := os.Mkdir(filepath.Join(parent, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(parent, "forebay-0755", lockName), nil, 0o600)
	os.Chmod(filepath.Join(parent, "forebay-0755"), 0o755)
	make := func() *runDir {
		d, err := makeRunDir(parent)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	dead := make()
	for _, name := range []string{socketName, ownSocketName} {
		if err := os.WriteFile(filepath.Join(dead.path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	live := make()
	dead.lock.Close() // as the kernel does when its process ends
	last := make()
	names := func() (names []string) {
		entries, _ := os.ReadDir(parent)
		for _, e := range entries {
			names = append(names, filepath.Join(parent, e.Name()))
		}
		return names
	}
	if got := names(); len(got) != 4 || slices.Contains(got, dead.path) || !slices.Contains(got, live.path) {
		t.Errorf("got %v, want all but %s", got, dead.path)
	}
	live.remove()
	last.remove()
	if got := names(); len(got) != 2 {
		t.Errorf("after remove: %v", got)
	}
}

func TestUnknownKernels(t *testing.T) {
	if got := unknownKernels(" avx512, zzz,,avx2,ref"); !slices.Equal(got, []string{"zzz", "ref"}) {
		t.Errorf("got %v", got)
	}
	for _, set := range kernels.Sets() {
		if set.Name != "ref" && !slices.Contains(kernelNames, set.Name) {
			t.Errorf("the kernel set %q can be switched off but is not among %v", set.Name, kernelNames)
		}
	}
}
