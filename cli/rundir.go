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

// runDir is the directory of this process's socket, that only this user may
// enter. Its lock file is locked for as long as the process lives, however it
// ends: so the next one can tell which directories were left behind. (A socket
// that refuses connections does not tell: its engine may be about to restart.)
type runDir struct {
	path string
	lock *os.File
}

const (
	runDirPrefix = "forebay-"
	lockName     = "lock"
	socketName   = "engine.sock"
)

// makeRunDir makes the directory under parent, and removes those that dead
// processes left there.
func makeRunDir(parent string) (*runDir, error) {
	sweep(parent)
	path, err := os.MkdirTemp(parent, runDirPrefix)
	if err != nil {
		return nil, fmt.Errorf("directory for the engine's socket: %w; set XDG_RUNTIME_DIR to one that can be written", err)
	}
	d := &runDir{path: path}
	// Under another name until it is locked, lest another process sweep it.
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

// runDirParent is where the directory goes. A socket's path is short by nature,
// so a long runtime directory is passed over.
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

// sweep removes the directories under parent that are ours and whose process is
// dead. What goes wrong with one does not matter.
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

// removeDead removes the files that a runDir has, then the directory: never
// anything else.
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
	os.Remove(filepath.Join(path, lockName))
	os.Remove(path)
}
