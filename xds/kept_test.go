package xds

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
)

// TestKeptPolicy: what is damaged, another node's, or refused is not begun with, and
// says so.
func TestKeptPolicy(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, keptName)
	b := book{filesMax: 10, bytesMax: 1000}
	if _, err := b.changed(policyOf("7", "a=x"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := save(dir, "n", &b); err != nil {
		t.Fatal(err)
	}
	good, _ := os.ReadFile(file)
	warm := func(node string, take Take) error {
		c, err := New(Config{StateDir: dir, BytesMax: 1024}, &Bootstrap{Node: BootstrapNode{ID: node}}, "1", take, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Warm()
		if err != nil && (c.State(time.Now()).Source != FromNowhere || len(c.book.versions()) != 0) {
			t.Error("it holds something, or would not be sent it again")
		}
		return err
	}
	g := &gateway{}
	if err := warm("n", g.take); err != nil || g.holds() != "a=x " {
		t.Errorf("%v, holds %s", err, g.holds())
	}
	refuse := func([]conf.File) error { return errors.New("a:1: is refused") }
	for want, err := range map[string]error{"belongs to the node": warm("other", g.take), "a:1: is refused": warm("n", refuse)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, text := range map[string]string{
		"checksum": strings.Replace(string(good), `"text":"x"`, `"text":"y"`, 1), "unexpected end": string(good[:len(good)/2]), "which no policy has": strings.Repeat("x", 7<<20),
	} {
		os.WriteFile(file, []byte(text), 0o600)
		if err := warm("n", g.take); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Errorf("the folder holds %v", files)
	}
}
