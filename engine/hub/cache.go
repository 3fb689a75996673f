package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// folder is the part of the cache that belongs to one repository.
type folder struct {
	repo  string
	root  string
	locks string
}

const folderPrefix = "models--"

func (h *Hub) folder(repo string) folder {
	name := folderPrefix + strings.ReplaceAll(repo, "/", "--")
	return folder{repo: repo, root: filepath.Join(h.cfg.CacheDir, name), locks: filepath.Join(h.cfg.CacheDir, ".locks", name)}
}

func (f folder) blob(etag string) string       { return filepath.Join(f.root, "blobs", etag) }
func (f folder) ref(revision string) string    { return filepath.Join(f.root, "refs", revision) }
func (f folder) snapshot(commit string) string { return filepath.Join(f.root, "snapshots", commit) }
func (f folder) tree(commit string) string     { return filepath.Join(f.root, "trees", commit+".json") }
func (f folder) file(commit, name string) string {
	return filepath.Join(f.snapshot(commit), filepath.FromSlash(name))
}

const incomplete = ".incomplete"

// commitOf returns the commit that revision is, or was at when last seen; "" if
// unknown.
func (f folder) commitOf(revision string) string {
	if commitPattern.MatchString(revision) {
		return revision
	}
	text, err := readSmall(f.ref(revision), 256)
	if commit := strings.TrimSpace(string(text)); err == nil && commitPattern.MatchString(commit) {
		return commit
	}
	return ""
}

// setRef stores the commit of a revision.
func (f folder) setRef(revision, commit string) error {
	if revision == commit || f.commitOf(revision) == commit {
		return nil
	}
	return replaceFile(f.ref(revision), []byte(commit))
}

// holds tells whether the snapshot has e, complete.
func (f folder) holds(commit string, e entry) bool {
	info, err := os.Stat(f.file(commit, e.Name))
	return err == nil && info.Mode().IsRegular() && (e.Size < 0 || info.Size() == e.Size)
}

// link puts the blob into the snapshot: as a symbolic link, or, if the file
// system has none, as a hard link or a copy.
func (f folder) link(commit string, e entry) error {
	target, at := f.blob(e.ETag), f.file(commit, e.Name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	relative, err := filepath.Rel(filepath.Dir(at), target)
	if err != nil {
		return err
	}
	fresh := fmt.Sprintf("%s.%d.tmp", at, os.Getpid())
	defer os.Remove(fresh)
	if os.Symlink(relative, fresh) != nil && os.Link(target, fresh) != nil {
		if err := copyFile(target, fresh); err != nil {
			return err
		}
	}
	return os.Rename(fresh, at)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// replaceFile writes a small file so that a reader sees all of it or none.
func replaceFile(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	_, err = out.Write(text)
	if err = errors.Join(err, out.Chmod(0o644), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), name)
}

// readSmall reads a regular file of at most bytesMax.
func readSmall(name string, bytesMax int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > bytesMax {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	return os.ReadFile(name)
}

// errLocked means that another process holds the lock.
var errLocked = errors.New("another process is downloading it")

// tryLock locks the blob, also against the Hub's own tools. On a file system
// without locks it succeeds, and release does nothing.
func (f folder) tryLock(etag string) (release func(), err error) {
	if err := os.MkdirAll(f.locks, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(f.locks, etag+".lock"), os.O_CREATE|os.O_RDWR, 0o664)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		file.Close()
		return nil, errLocked
	}
	return func() { file.Close() }, nil
}

const lockPoll = 200 * time.Millisecond

// lock waits for the lock, with a warning that it waits.
func (h *Hub) lock(ctx context.Context, f folder, e entry) (release func(), err error) {
	for told := false; ; told = true {
		release, err := f.tryLock(e.ETag)
		if !errors.Is(err, errLocked) {
			return release, err
		}
		if !told {
			h.warn("another process is downloading %s: waiting for it", e.Name)
		}
		if err := h.cfg.Sleep(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

// freeBytes returns how many bytes an unprivileged user can still write in dir,
// -1 if unknown.
func freeBytes(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
