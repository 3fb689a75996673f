//go:build unix

package gguf

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
)

func TestPathsThatAreNoFilesAreRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	mustDo := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mustDo(os.Mkdir(path("dir.gguf"), 0o700))
	mustDo(syscall.Mkfifo(path("fifo.gguf"), 0o600))
	mustDo(os.Symlink(path("gone"), path("dangling.gguf")))
	mustDo(os.WriteFile(path("empty.gguf"), nil, 0o600))
	mustDo(os.WriteFile(path("good"), gguftest.TinyModel(gguftest.Tiny{}), 0o600))
	mustDo(os.Symlink(path("good"), path("link.gguf")))
	for name, want := range map[string]string{
		"dir.gguf": "is a directory; name a file in it", "fifo.gguf": "is not a regular file but p",
		"dangling.gguf": "is a link to a file that does not exist", "empty.gguf": "is empty", "absent.gguf": "no such file",
	} {
		opened := make(chan error, 1)
		go func() { _, err := Open(path(name)); opened <- err }()
		select {
		case err := <-opened:
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path(name)) {
				t.Errorf("%s: error %v, want %q", name, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: opening blocks", name)
		}
	}
	f, err := Open(path("link.gguf"))
	mustDo(err)
	mustDo(f.Close())
}
