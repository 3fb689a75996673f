package hub

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lines says of each model what List says, in short.
func (c *client) lines(t *testing.T) (lines []string) {
	t.Helper()
	all, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s", one.Ref, one.Bytes, one.Problem)))
	}
	return lines
}

// What is broken is listed as that, blocks nothing and hides nothing.
func TestBrokenFilesAreListed(t *testing.T) {
	s, dir := newServer(t, map[string]string{"m-Q4_0.gguf": "four", "m-Q8_0.gguf": "eight"}), t.TempDir()
	c := s.client(dir, nil)
	c.mustPull(t, "hf:acme/tiny:Q4_0")
	snapshot := filepath.Join(dir, "models--acme--tiny", "snapshots", s.commit)
	for _, err := range []error{
		syscall.Mkfifo(filepath.Join(snapshot, "fifo.gguf"), 0o600),
		os.Mkdir(filepath.Join(snapshot, "folder.gguf"), 0o700),
		os.Symlink("../../blobs/none", filepath.Join(snapshot, "link.gguf")),
		os.WriteFile(filepath.Join(snapshot, "part-00001-of-00002.gguf"), nil, 0o600),
		os.MkdirAll(filepath.Join(dir, "models--x"), 0o700),
		os.MkdirAll(filepath.Join(dir, "models--..--x"), 0o700),
		os.MkdirAll(filepath.Join(dir, "datasets--a--b", "snapshots"), 0o700),
		os.WriteFile(filepath.Join(dir, "models--acme--tiny", "blobs", "abc"+incomplete), []byte("12"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"hf:acme/tiny:fifo.gguf 0 fifo.gguf cannot be read, or leads to no file",
		"hf:acme/tiny:link.gguf 0 link.gguf cannot be read, or leads to no file",
		"hf:acme/tiny:m-Q4_0.gguf 4",
		`hf:acme/tiny:part-00001-of-00002.gguf 0 the cached acme/tiny is incomplete: "part-00002-of-00002.gguf" is missing`,
		"hf:acme/tiny 2 a download that is not complete",
	}
	if diff := cmp.Diff(want, c.lines(t)); diff != "" {
		t.Error(diff)
	}
	if got := s.client(filepath.Join(dir, "none"), nil).lines(t); got != nil {
		t.Errorf("a cache that is not there: %q", got)
	}
}

func TestRemoveKeepsWhatOthersUse(t *testing.T) {
	s, dir := newServer(t, map[string]string{"m-Q4_0.gguf": "four", "m-Q8_0.gguf": "eight"}), t.TempDir()
	c := s.client(dir, nil)
	c.mustPull(t, "hf:acme/tiny:Q4_0")
	c.mustPull(t, "hf:acme/tiny:Q8_0")
	first := s.commit
	s.mu.Lock()
	s.commit = strings.Repeat("2", 40)
	s.mu.Unlock()
	c.mustPull(t, "hf:acme/tiny:Q4_0") // the same bytes at another commit
	for _, step := range []struct {
		ref   string
		want  Removed
		fails string
		left  int // files under the cache, locks excepted
	}{
		{"hf:acme/other", Removed{}, "is not in", 8},
		{"hf:acme/tiny:Q5_0", Removed{}, "no quantisation", 8},
		{"hf:acme/tiny@" + first + ":Q4_0", Removed{1, 0}, "", 7},
		{"hf:acme/tiny@" + first, Removed{1, 5}, "", 4}, // and the commit's tree
		{"hf:acme/tiny@" + first, Removed{}, "is not in", 4},
		{"hf:acme/tiny:m-Q4_0.gguf", Removed{1, 4}, "", 0},
	} {
		got, err := c.Remove(ref(t, step.ref))
		got.Bytes = min(got.Bytes, 5) // refs and trees are freed too
		if step.fails != "" && (err == nil || !strings.Contains(err.Error(), step.fails)) || step.fails == "" && err != nil || got.Files != step.want.Files {
			t.Errorf("%s: %+v, %v; want %+v, %q", step.ref, got, err, step.want, step.fails)
		}
		if left := c.filesLeft(t); len(left) != step.left {
			t.Errorf("%s: %d files are left, want %d: %q", step.ref, len(left), step.left, left)
		}
	}
}

func (c *client) filesLeft(t *testing.T) (files []string) {
	t.Helper()
	filepath.WalkDir(filepath.Join(c.cfg.CacheDir, "models--acme--tiny"), func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return nil
	})
	return files
}

func TestRemoveTheRepository(t *testing.T) {
	s, dir := newServer(t, oneFile()), t.TempDir()
	c := s.client(dir, nil)
	c.mustPull(t, "hf:acme/tiny")
	f := c.folder(repo)
	if err := os.WriteFile(f.blob("abc")+incomplete, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := f.tryLock("abc")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Remove(ref(t, "hf:acme/tiny")); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a download runs, and: %v", err)
	}
	release()
	if removed, err := c.Remove(ref(t, "hf:acme/tiny")); err != nil || removed.Files != 1 || removed.Bytes < int64(len(body)) {
		t.Errorf("%+v, %v", removed, err)
	}
	if _, err := os.Stat(f.root); err == nil {
		t.Error("the folder is still there")
	}
}
