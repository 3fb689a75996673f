package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// runDir is the directory of this process's socket. Only this user may enter it.
// The kernel holds its lock file locked until the process ends, however it ends,
// so that the next process can find directories that were left behind. (A socket
// that refuses connections proves nothing: its engine may be about to restart.)
type runDir struct {
	path string
	lock *os.File
}

const (
	runDirPrefix = "forebay-"
	lockName     = "lock"
	socketName   = "engine.sock"
	// ownSocketName is the name of the API's socket where our own engine is one of the
	// upstreams.
	ownSocketName = "own.sock"
)

// makeRunDir makes the directory under parent, and removes the directories that
// dead processes left there.
func makeRunDir(parent string) (*runDir, error) {
	sweep(parent)
	path, err := os.MkdirTemp(parent, runDirPrefix)
	if err != nil {
		return nil, fmt.Errorf("directory for the engine's socket: %w; set XDG_RUNTIME_DIR to one that can be written", err)
	}
	d := &runDir{path: path}
	// It has another name until it is locked, so that no other process removes it.
	fresh := filepath.Join(path, lockName+".new")
	if d.lock, err = os.OpenFile(fresh, os.O_CREATE|os.O_RDWR, 0o600); err == nil {
		err = errors.Join(unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB), os.Rename(fresh, filepath.Join(path, lockName)))
	}
	if err != nil {
		d.remove()
		return nil, fmt.Errorf("directory for the engine's socket: %w", err)
	}
	return d, nil
}

func (d *runDir) socket() string { return filepath.Join(d.path, socketName) }

func (d *runDir) remove() {
	os.RemoveAll(d.path)
	if d.lock != nil {
		d.lock.Close()
	}
}

// runDirParent returns the parent of the directory. The path of a socket must be
// short, so a long XDG_RUNTIME_DIR is not used.
func (c *console) runDirParent() string {
	const bytesMax = 70
	parent := c.getenv("XDG_RUNTIME_DIR")
	if info, err := os.Stat(parent); err != nil || !info.IsDir() || len(parent) > bytesMax {
		parent = os.TempDir()
	}
	if len(parent) > bytesMax {
		parent = "/tmp"
	}
	return parent
}

// sweep removes this user's directories under parent whose process is dead. It
// ignores errors.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), runDirPrefix) || info.Mode() != fs.ModeDir|0o700 {
			continue
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) == os.Geteuid() {
			removeDead(filepath.Join(parent, e.Name()))
		}
	}
}

// removeDead removes the files of a runDir and then the directory, and nothing else.
func removeDead(path string) {
	lock, err := os.Open(filepath.Join(path, lockName))
	if err != nil {
		return
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // its process lives
	}
	os.Remove(filepath.Join(path, socketName))
	os.Remove(filepath.Join(path, ownSocketName))
	os.Remove(filepath.Join(path, lockName))
	os.Remove(path)
}
