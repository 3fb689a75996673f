package wire

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// shortDir is a directory whose path leaves room for tests of path lengths.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// deadSocket leaves a socket at path as a killed process would.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
}

func TestPathsThatAreTaken(t *testing.T) {
	t.Run("a dead engine's socket is replaced", func(t *testing.T) {
		path := filepath.Join(shortDir(t), "e.sock")
		deadSocket(t, path)
		ln, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		ln.Close()
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("after Close: %v", err)
		}
	})
	t.Run("a live one stays", func(t *testing.T) {
		path := filepath.Join(shortDir(t), "e.sock")
		ln, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another engine is serving "+path) {
			t.Errorf("got %v", err)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatalf("the live one: %v", err)
		}
		conn.Close()
	})
	for what, make := range map[string]func(path string) error{
		"a file":          func(p string) error { return os.WriteFile(p, []byte("keep"), 0o600) },
		"a directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"a symbolic link": func(p string) error { return os.Symlink("elsewhere", p) },
	} {
		t.Run(what+" stays", func(t *testing.T) {
			path := filepath.Join(shortDir(t), "e.sock")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(path)
			_, err := Listen(path)
			if err == nil || !strings.Contains(err.Error(), "is "+what) {
				t.Errorf("Listen: %v", err)
			}
			if _, err := dialPath(context.Background(), path); err == nil || !strings.Contains(err.Error(), "is "+what) {
				t.Errorf("dial: %v", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was touched: %v", err)
			}
		})
	}
}

func TestOneOfManyServes(t *testing.T) {
	path := filepath.Join(shortDir(t), "e.sock")
	deadSocket(t, path)
	var all sync.WaitGroup
	won := make(chan net.Listener, 8)
	for range 8 {
		all.Go(func() {
			if ln, err := Listen(path); err == nil {
				won <- ln
			}
		})
	}
	all.Wait()
	close(won)
	if len(won) != 1 {
		t.Errorf("%d bound", len(won))
	}
	for ln := range won {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Errorf("the winner does not serve: %v", err)
		} else {
			conn.Close()
		}
		ln.Close()
	}
}

// TestListenDoesNotWaitForStrangers: anybody who may read a directory may
// hold its lock.
func TestListenDoesNotWaitForStrangers(t *testing.T) {
	dir := shortDir(t)
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if _, err := Listen(filepath.Join(dir, "e.sock")); err == nil || !strings.Contains(err.Error(), "locked by another process") {
			t.Errorf("got %v", err)
		}
	})
}

func TestLongSocketPaths(t *testing.T) {
	dir := shortDir(t)
	t.Chdir(dir)
	for _, size := range []int{107, 108, 120, 300} {
		for _, base := range []string{"", dir + "/"} {
			path := base + strings.Repeat("a", size-len(base))
			t.Run(fmt.Sprint(size, base != ""), func(t *testing.T) {
				ln, err := Listen(path)
				if size > pathBytesMax {
					_, dialErr := NewClient(Config{Path: path})
					for _, err := range []error{err, dialErr} {
						if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes", size)) || !strings.Contains(err.Error(), "allows 107") {
							t.Errorf("got %v", err)
						}
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				conn, err := dialPath(ctx, path)
				if err != nil {
					t.Fatal(err)
				}
				conn.Close()
			})
		}
	}
	if _, err := Listen(""); err == nil {
		t.Error("an empty path is taken")
	}
	if _, err := Listen("@abstract"); err == nil {
		t.Error("an abstract path is taken")
	}
}

func TestListenChecksTheDirectory(t *testing.T) {
	dir := shortDir(t)
	if _, err := Listen(filepath.Join(dir, "none", "none", "e.sock")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("no directory: %v", err)
	}
	made := filepath.Join(dir, "made")
	ln, err := Listen(filepath.Join(made, "e.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory that Listen made: %v, %v", info, err)
	}
	other := filepath.Join(dir, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o777, false}, {0o777 | os.ModeSticky, true}, {0o755, true}, {0o770, true}} {
		if err := os.Chmod(other, c.mode); err != nil {
			t.Fatal(err)
		}
		ln, err = Listen(filepath.Join(other, "e.sock"))
		if (err == nil) != c.ok {
			t.Errorf("mode %v: %v", c.mode, err)
		}
		if err == nil {
			ln.Close()
		} else if !strings.Contains(err.Error(), "chmod o-w") {
			t.Errorf("mode %v: %v", c.mode, err)
		}
	}
}
