package repack

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/kernels"
)

const key = "model 1 set 1"

// someParts are matrices of sizes that alignment does not divide.
func someParts() []Part {
	part := func(name string, t kernels.Type, rows, cols int) Part {
		data := bytes.Repeat([]byte(name), rows*t.Bytes(cols))[:rows*t.Bytes(cols)]
		return Part{name, &kernels.Matrix{Type: t, Rows: rows, Cols: cols, Data: data}}
	}
	return []Part{part("a:0", kernels.Q8_0, 3, 64), part("b:0", kernels.F32, 1, 1), part("b:1", kernels.F16, 5, 33)}
}

func newCache(t *testing.T) *Cache { return &Cache{Dir: t.TempDir(), BytesMax: 1 << 20} }

func write(t *testing.T, c *Cache, key string) string {
	t.Helper()
	if err := c.Write(t.Context(), key, someParts()); err != nil {
		t.Fatal(err)
	}
	return c.path(key)
}

// names are the files of the cache.
func names(t *testing.T, c *Cache) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRoundTrip(t *testing.T) {
	c := &Cache{Dir: filepath.Join(t.TempDir(), "deep", "er"), BytesMax: 1 << 20}
	write(t, c, key)
	im, err := c.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	team := kernels.NewTeam(2)
	defer team.Close()
	if err := im.Check(team); err != nil {
		t.Error(err)
	}
	for _, p := range someParts() {
		m := im.Matrix(p.Name, p.Type, p.Rows, p.Cols, len(p.Data))
		if m == nil || !bytes.Equal(m.Data, p.Data) || uintptr(unsafe.Pointer(&m.Data[0]))%alignment != 0 {
			t.Errorf("%s is %v", p.Name, m)
		}
		if im.Matrix(p.Name, p.Type, p.Rows+1, p.Cols, len(p.Data)) != nil || im.Matrix(p.Name+"x", p.Type, p.Rows, p.Cols, len(p.Data)) != nil ||
			im.Matrix(p.Name, p.Type, p.Rows, p.Cols, len(p.Data)+1) != nil {
			t.Errorf("%s is found as another", p.Name)
		}
	}
	if left := names(t, c); len(left) != 1 {
		t.Errorf("files left: %v", left)
	}
	if _, err := c.Open("another"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an image that was never written: %v", err)
	}
}

// sealed makes the header's hash right again, of a header of the usual size.
func sealed(b []byte) []byte {
	end := headBytes + len(key) + len(someParts())*entryBytes
	le.PutUint64(b[end:], xxh3.Hash(b[:end]))
	return b
}

func TestRefusals(t *testing.T) {
	c := newCache(t)
	path := write(t, c, key)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entryAt := headBytes + len(key)
	for name, tc := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"empty":          {func(b []byte) []byte { return nil }, "empty"},
		"text":           {func(b []byte) []byte { return []byte(strings.Repeat("hello ", 20)) }, "no repack image"},
		"older format":   {func(b []byte) []byte { b[8]--; return sealed(b) }, "version 0"},
		"cut in header":  {func(b []byte) []byte { return b[:headBytes+3] }, "it has"},
		"cut in data":    {func(b []byte) []byte { return b[:len(b)-1] }, "it has"},
		"too long":       {func(b []byte) []byte { return append(b, 0) }, "it has"},
		"header damaged": {func(b []byte) []byte { b[entryAt+9] ^= 1; return b }, "header is damaged"},
		"another key":    {func(b []byte) []byte { b[headBytes] ^= 1; return sealed(b) }, "it is of"},
		"many entries":   {func(b []byte) []byte { b[19] = 0xff; return sealed(b) }, "more than"},
		"unknown type":   {func(b []byte) []byte { b[entryAt+8] = 250; return sealed(b) }, "does not fit"},
		"no rows":        {func(b []byte) []byte { b[entryAt+12] = 0; return sealed(b) }, "does not fit"},
		"askew":          {func(b []byte) []byte { b[entryAt+24]++; return sealed(b) }, "does not fit"},
		"beyond the end": {func(b []byte) []byte { b[entryAt+39] = 0x80; return sealed(b) }, "does not fit"},
		"in the header":  {func(b []byte) []byte { le.PutUint64(b[entryAt+24:], 64); return sealed(b) }, "does not fit"},
		"data damaged":   {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "1 of its 3 matrices"},
		"whole":          {func(b []byte) []byte { return b }, ""},
	} {
		if err := os.WriteFile(path, tc.change(bytes.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		err := openAndCheck(c)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func openAndCheck(c *Cache) error {
	im, err := c.Open(key)
	if err != nil {
		return err
	}
	team := kernels.NewTeam(1)
	defer team.Close()
	return errors.Join(im.Check(team), im.Close())
}

func FuzzParse(f *testing.F) {
	parts := someParts()
	entries, size, err := place(key, parts)
	if err != nil {
		f.Fatal(err)
	}
	image := append(encode(key, entries, size), make([]byte, size)...)[:size]
	f.Add(image)
	f.Add(image[:headBytes])
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == len(image) {
			sealed(data) // so that what is behind the hash is tried too
		}
		entries, err := parse(data, key)
		if err != nil {
			return
		}
		for _, e := range entries {
			if n := len(data[e.offset : e.offset+e.bytes]); uint64(n) != e.bytes || int(e.cols)%e.kind.BlockLen() != 0 {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// Who comes while another writes leaves it to that one, whatever the order.
func TestConcurrentWriters(t *testing.T) {
	c := newCache(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if err := c.Write(t.Context(), key, someParts()); err != nil && !errors.Is(err, ErrBusy) {
					t.Error(err)
				}
				if err := openAndCheck(c); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left := names(t, c); len(left) != 1 || openAndCheck(c) != nil {
		t.Errorf("left: %v, %v", left, openAndCheck(c))
	}
}

// What a killed writer leaves is no image, and is written over or removed; what a
// living one writes is left alone.
func TestUnfinished(t *testing.T) {
	c := newCache(t)
	for _, of := range []string{key, "dead", "alive"} {
		if err := os.WriteFile(c.path(of)+partExt, []byte(magic+"half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	alive, err := lockPart(c.path("alive") + partExt)
	if err != nil {
		t.Fatal(err)
	}
	if err := openAndCheck(c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half an image: %v", err)
	}
	if err := c.Write(t.Context(), "alive", someParts()); !errors.Is(err, ErrBusy) {
		t.Errorf("beside a writer: %v", err)
	}
	write(t, c, key)
	if left := names(t, c); len(left) != 2 || openAndCheck(c) != nil {
		t.Errorf("left: %v, %v", left, openAndCheck(c))
	}
	alive.Close()
	write(t, c, "other")
	if left := names(t, c); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
}

func TestCancelledWrite(t *testing.T) {
	c := newCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Rest = 1 << 30
	if err := c.Write(ctx, key, someParts()); !errors.Is(err, context.Canceled) || len(names(t, c)) != 0 {
		t.Errorf("got %v, left %v", err, names(t, c))
	}
}

func TestLimit(t *testing.T) {
	c := newCache(t)
	_, size, _ := place(key, someParts())
	c.BytesMax = 2*int64(size) + 100
	foreign := filepath.Join(c.Dir, "notes.repack")
	if err := os.WriteFile(foreign, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, of := range []string{"first", "second"} {
		old := time.Now().Add(time.Duration(i-9) * time.Hour)
		if err := os.Chtimes(write(t, c, of), old, old); err != nil {
			t.Fatal(err)
		}
	}
	im, err := c.Open("first") // used last now
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	write(t, c, key)
	for of, want := range map[string]bool{"first": true, "second": false, key: true} {
		if _, err := os.Stat(c.path(of)); (err == nil) != want {
			t.Errorf("%s is there: %v", of, err == nil)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error("a file that is no image was removed")
	}
	c.BytesMax = int64(size) - 1
	if err := c.Write(t.Context(), key, someParts()); err == nil || !strings.Contains(err.Error(), "all images together") {
		t.Errorf("an image over the limit: %v", err)
	}
}

func TestDirectoryThatCannotBeMade(t *testing.T) {
	c := newCache(t)
	file := filepath.Join(c.Dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Dir = file
	if err := c.Write(t.Context(), key, someParts()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}
