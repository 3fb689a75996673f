package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// Lengths of an ETag that is a checksum, in hexadecimal digits.
const (
	sha1Digits   = 40
	sha256Digits = 64
)

// blobName matches an ETag that is safe as a file name.
var blobName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// download puts files into the snapshot of commit, and then writes its ref.
func (h *Hub) download(ctx context.Context, f folder, ref Ref, commit string, files []entry) error {
	var wanted []entry
	var p Progress
	for _, e := range files {
		if f.holds(commit, e) {
			continue
		}
		if e.ETag == "" || e.Size < 0 {
			if err := h.ask(ctx, ref, commit, &e); err != nil {
				return err
			}
		}
		if !blobName.MatchString(e.ETag) || e.Size < 0 {
			return fmt.Errorf("%s: the server does not say enough of %s: its ETag is %q, its size %d", ref.Repo, e.Name, e.ETag, e.Size)
		}
		wanted = append(wanted, e)
		p.Total += e.Size
	}
	if len(wanted) == 0 {
		return nil
	}
	if err := h.makeRoom(f, wanted); err != nil {
		return err
	}
	p.Of = len(wanted)
	defer func() { p.Finished = true; h.progress(p) }()
	for _, e := range wanted {
		p.File = e.Name
		p.Index++
		if err := h.transfer(ctx, f, ref, commit, e, &p); err != nil {
			return err
		}
	}
	return nil
}

// transfer downloads the blob of e and links it, both under the blob's lock.
func (h *Hub) transfer(ctx context.Context, f folder, ref Ref, commit string, e entry, p *Progress) error {
	release, err := h.lock(ctx, f, e)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	defer release()
	t := &transfer{hub: h, folder: f, ref: ref, entry: e, progress: p, before: p.Done, address: h.address(ref, commit, e.Name)}
	if err := t.run(ctx); err != nil {
		return err
	}
	p.Done = t.before + e.Size
	if err := f.link(commit, e); err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	return nil
}

func (h *Hub) address(ref Ref, commit, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return h.cfg.Endpoint + "/" + ref.Repo + "/resolve/" + commit + "/" + strings.Join(parts, "/")
}

// ask fills in what the listing does not say about e.
func (h *Hub) ask(ctx context.Context, ref Ref, commit string, e *entry) error {
	return h.retry(ctx, h.cfg.AttemptsMax, func() (bool, error) {
		r, err := h.send(ctx, http.MethodHead, h.address(ref, commit, e.Name), 0)
		if err != nil {
			return false, h.explain(ref, err)
		}
		defer r.close()
		e.ETag, e.Size = r.etag, r.size
		return false, nil
	})
}

// makeRoom makes the folder of blobs and checks that the disk has room for them.
func (h *Hub) makeRoom(f folder, wanted []entry) error {
	dir := filepath.Join(f.root, "blobs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w; set HF_HUB_CACHE to a folder that can be written", err)
	}
	var needed int64
	for _, e := range wanted {
		if info, err := os.Stat(f.blob(e.ETag)); err == nil && info.Size() == e.Size {
			continue
		}
		needed += e.Size
		if info, err := os.Stat(f.blob(e.ETag) + incomplete); err == nil {
			needed -= min(info.Size(), e.Size)
		}
	}
	if free := freeBytes(dir); free >= 0 && needed > free {
		return fmt.Errorf("%s has %s free, and %s are needed: make room, or set HF_HUB_CACHE to another place", dir, Bytes(free), Bytes(needed))
	}
	return nil
}

// transfer is the download of one blob.
type transfer struct {
	hub      *Hub
	folder   folder
	ref      Ref
	entry    entry
	address  string
	progress *Progress
	before   int64 // bytes of the files before this one

	out  *os.File
	sum  hash.Hash // of the first at bytes of out; nil if the ETag is not a checksum
	at   int64
	sent bool // all bytes were received in this run
}

// run downloads the blob unless it exists.
func (t *transfer) run(ctx context.Context) (err error) {
	final := t.folder.blob(t.entry.ETag)
	if info, err := os.Stat(final); err == nil && info.Mode().IsRegular() && info.Size() == t.entry.Size {
		return nil
	}
	partial := final + incomplete
	if t.out, err = os.OpenFile(partial, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644); err != nil {
		return err
	}
	defer t.out.Close()
	if err := t.fill(ctx); err != nil {
		return t.partly(ctx, err)
	}
	if err := t.out.Sync(); err != nil {
		return t.partly(ctx, err)
	}
	return os.Rename(partial, final)
}

// fill continues where an earlier run stopped. If the checksum is wrong, it
// blames the earlier part first and downloads everything again.
func (t *transfer) fill(ctx context.Context) error {
	if err := t.resume(ctx); err != nil {
		return err
	}
	for {
		if err := t.hub.retry(ctx, t.hub.cfg.AttemptsMax, func() (bool, error) { return t.attempt(ctx) }); err != nil {
			return err
		}
		got := t.checksum()
		if got == "" {
			t.hub.warn("%s: the server names no checksum, so only the size was checked", t.entry.Name)
		}
		if got == "" || got == t.entry.ETag {
			return nil
		}
		again := !t.sent
		if err := t.restart(); err != nil {
			return err
		}
		if !again {
			os.Remove(t.out.Name())
			return fmt.Errorf("the checksum of %s is %s and should be %s: the download was deleted; if it happens again, the server or a proxy changes what it sends", t.entry.Name, got, t.entry.ETag)
		}
		t.hub.warn("%s: what an earlier download left is wrong; starting over", t.entry.Name)
	}
}

// resume reads what an earlier run left.
func (t *transfer) resume(ctx context.Context) error {
	info, err := t.out.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file; remove it", t.out.Name())
	}
	if t.begin(); info.Size() == 0 || info.Size() > t.entry.Size {
		return t.restart()
	}
	t.sent = false
	if t.sum == nil {
		t.at = info.Size()
		return nil
	}
	buffer := make([]byte, copyBytes)
	for t.at < info.Size() {
		n, err := t.out.ReadAt(buffer[:min(copyBytes, info.Size()-t.at)], t.at)
		t.sum.Write(buffer[:n])
		t.at += int64(n)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && err != io.EOF || n == 0 {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
	}
	return nil
}

// begin starts an empty checksum.
func (t *transfer) begin() {
	t.at, t.sent, t.sum = 0, true, nil
	switch len(t.entry.ETag) {
	case sha256Digits:
		t.sum = sha256.New()
	case sha1Digits:
		t.sum = sha1.New()
		fmt.Fprintf(t.sum, "blob %d\x00", t.entry.Size)
	}
}

// restart drops all bytes received so far.
func (t *transfer) restart() error {
	t.begin()
	return t.out.Truncate(0)
}

// checksum returns the checksum of all bytes, "" if there is none to compare with.
func (t *transfer) checksum() string {
	if t.sum == nil {
		return ""
	}
	return hex.EncodeToString(t.sum.Sum(nil))
}

const copyBytes = 1 << 20

// attempt makes one request for the missing bytes.
func (t *transfer) attempt(ctx context.Context) (progress bool, err error) {
	if t.at == t.entry.Size {
		return false, nil
	}
	r, err := t.hub.send(ctx, http.MethodGet, t.address, t.at)
	if err != nil {
		return false, t.hub.explain(t.ref, err)
	}
	defer r.close()
	if r.etag != "" && r.etag != t.entry.ETag && len(r.etag) == len(t.entry.ETag) {
		return false, fmt.Errorf("%s: the server names the checksum %s and then %s: try again later", t.entry.Name, t.entry.ETag, r.etag)
	}
	if err := t.align(r); err != nil {
		return false, err
	}
	began := t.at
	err = t.copy(r)
	return t.at > began, err
}

// align moves to the position where the answer begins: a server without ranges
// sends the whole file.
func (t *transfer) align(r *reply) error {
	switch r.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		return errors.Join(t.restart(), transientError{fmt.Errorf("%s: the server refuses to go on in the middle", t.entry.Name)})
	case http.StatusPartialContent:
		want := fmt.Sprintf("bytes %d-%d/%d", t.at, t.entry.Size-1, t.entry.Size)
		if got := r.Header.Get("Content-Range"); got != want {
			return errors.Join(t.restart(), transientError{fmt.Errorf("%s: the server sends %q instead of %q", t.entry.Name, got, want)})
		}
		return nil
	}
	if t.at > 0 {
		if err := t.restart(); err != nil {
			return err
		}
	}
	if r.ContentLength >= 0 && r.ContentLength != t.entry.Size {
		return fmt.Errorf("%s: the server sends %d bytes, and the file has %d", t.entry.Name, r.ContentLength, t.entry.Size)
	}
	return nil
}

// copy writes the answer at its own offset, not at the end of the file. So a
// second writer writes the same bytes if locks do not work.
func (t *transfer) copy(r *reply) error {
	buffer := make([]byte, copyBytes)
	for {
		n, err := r.read(buffer, t.hub.cfg.StallLimit)
		if t.at+int64(n) > t.entry.Size {
			return fmt.Errorf("%s: the server sends more than %d bytes", t.entry.Name, t.entry.Size)
		}
		if n > 0 {
			if _, err := t.out.WriteAt(buffer[:n], t.at); err != nil {
				return err
			}
			if t.sum != nil {
				t.sum.Write(buffer[:n])
			}
			t.at += int64(n)
			t.progress.Done = t.before + t.at
			t.hub.progress(*t.progress)
		}
		switch {
		case err == io.EOF && t.at < t.entry.Size:
			return transientError{io.ErrUnexpectedEOF}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// partly adds to err how much of a failed download is kept.
func (t *transfer) partly(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w: %s of %s are kept, and the next attempt goes on from there", t.entry.Name, err, Bytes(t.at), Bytes(t.entry.Size))
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: %s are missing of %s; make room and try again, which goes on from there, or set HF_HUB_CACHE to another place", err, Bytes(t.entry.Size-t.at), t.entry.Name)
	}
	return fmt.Errorf("%s: %w", t.entry.Name, err)
}

// Bytes formats a number of bytes.
func Bytes(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1000, 0
	for value >= 999.5 && unit < len(units)-1 {
		value, unit = value/1000, unit+1
	}
	if value < 10 {
		return fmt.Sprintf("%.2f %cB", value, units[unit])
	}
	return fmt.Sprintf("%.3g %cB", value, units[unit])
}
