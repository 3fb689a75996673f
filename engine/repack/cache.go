package repack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// Cache is a directory of images. Several processes may use one at once.
type Cache struct {
	Dir      string
	BytesMax int64 // of all images; the least recently used are removed first
	// Rest is the pause after a write, in multiples of the write's time, so that
	// requests have the disk and the memory.
	Rest int
}

// ErrBusy means that another process writes the same image.
var ErrBusy = errors.New("another engine is writing it")

const (
	imageExt   = ".repack"
	partExt    = ".part" // follows imageExt while the image is written
	pieceBytes = 2 << 20 // a huge page
	hashDigits = 128 / 4 // in an image's name
)

// path returns the path of the image of key.
func (c *Cache) path(key string) string {
	sum := xxh3.HashString128(key).Bytes()
	return filepath.Join(c.Dir, fmt.Sprintf("%x%s", sum[:], imageExt))
}

// Open maps the image of key and marks it as used now. The error is
// fs.ErrNotExist if there is none, and otherwise says why the image is refused.
func (c *Cache) Open(key string) (*Image, error) {
	path := c.path(key)
	im, err := open(path, key)
	if err != nil {
		return nil, fmt.Errorf("repack image %s: %w", path, err)
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // a read-only directory works too
	return im, nil
}

// Write makes the image of key, unless another process is writing it (ErrBusy),
// and removes images beyond the limit. It stops when ctx ends.
func (c *Cache) Write(ctx context.Context, key string, parts []Part) error {
	path := c.path(key)
	if err := c.write(ctx, path, key, parts); err != nil {
		return fmt.Errorf("repack image %s: %w", path, err)
	}
	return nil
}

func (c *Cache) write(ctx context.Context, path, key string, parts []Part) error {
	entries, size, err := place(key, parts)
	if err != nil {
		return err
	}
	if size > uint64(c.BytesMax) {
		return fmt.Errorf("it would have %d bytes; all images together may have %d", size, c.BytesMax)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	f, err := lockPart(path + partExt)
	if err != nil {
		return err
	}
	defer f.Close() // releases the lock too
	if err := c.makeRoom(path, int64(size)); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	err = c.fill(ctx, f, key, parts, entries, size)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(c.Dir)
}

// fill writes the data and then the header. Without the header the file is not
// an image.
func (c *Cache) fill(ctx context.Context, f *os.File, key string, parts []Part, entries []entry, size uint64) error {
	w := pacedWriter{ctx: ctx, f: f, rest: c.Rest, piece: make([]byte, 0, pieceBytes), began: time.Now()}
	at := uint64(0)
	for i := range entries {
		w.write(make([]byte, entries[i].offset-at))
		w.hash.Reset()
		w.write(parts[i].Data)
		entries[i].sum = w.hash.Sum64()
		at = entries[i].offset + entries[i].bytes
	}
	w.flush()
	if w.err == nil {
		_, w.err = f.WriteAt(encode(key, entries, size), 0)
	}
	return w.err
}

// pacedWriter writes complete pieces, hashes them, and pauses between them. After
// the first failure it fails every write.
type pacedWriter struct {
	ctx   context.Context
	f     *os.File
	rest  int
	piece []byte
	hash  xxh3.Hasher
	began time.Time // when the work on this piece began
	err   error
}

func (w *pacedWriter) write(b []byte) {
	for len(b) > 0 && w.err == nil {
		n := min(len(b), cap(w.piece)-len(w.piece))
		_, _ = w.hash.Write(b[:n])
		w.piece, b = append(w.piece, b[:n]...), b[n:]
		if len(w.piece) == cap(w.piece) {
			w.flush()
		}
	}
}

func (w *pacedWriter) flush() {
	if w.err != nil {
		return
	}
	_, w.err = w.f.Write(w.piece)
	w.piece = w.piece[:0]
	rest := time.NewTimer(time.Duration(w.rest) * time.Since(w.began))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-w.ctx.Done():
		w.err = errors.Join(w.err, w.ctx.Err())
	}
	w.began = time.Now()
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeRoom removes unfinished images of dead writers, and the least recently
// used images, until an image of size bytes fits. The image at path will be
// replaced and does not count.
func (c *Cache) makeRoom(path string, size int64) error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	var images []fs.FileInfo
	for _, e := range entries {
		name := filepath.Join(c.Dir, e.Name())
		info, err := e.Info()
		switch {
		case err != nil || !info.Mode().IsRegular() || name == path:
		case strings.HasSuffix(name, imageExt) && len(e.Name()) == hashDigits+len(imageExt):
			images = append(images, info)
			size += info.Size()
		case strings.HasSuffix(name, imageExt+partExt) && name != path+partExt:
			if removeDead(name) {
				continue
			}
			size += info.Size()
		}
	}
	slices.SortFunc(images, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, info := range images {
		if size <= c.BytesMax {
			break
		}
		if err := os.Remove(filepath.Join(c.Dir, info.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		size -= info.Size()
	}
	return nil
}

// removeDead removes an unfinished image that no process writes.
func removeDead(name string) bool {
	f, err := lockPart(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return os.Remove(name) == nil
}
