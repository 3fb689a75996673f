package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// file is the file that gets lines, and the full ones beside it. It has one user.
type file struct {
	cfg     *Config
	log     *slog.Logger
	lock    *os.File
	open    *os.File
	size    int64  // of whole lines
	last    uint64 // number of the last line, of this file or the ones before
	dirty   bool   // there are lines without an fsync
	torn    bool   // something may follow the last whole line
	removed uint64 // full files
}

// seqDigits is the width of the number in the name of a full file, so that names
// sort as numbers.
const seqDigits = 20

// openFile opens the file, and goes on after its last whole line. A line that a crash
// cut is removed: its number comes again.
func openFile(cfg *Config, log *slog.Logger) (f *file, err error) {
	f = &file{cfg: cfg, log: log}
	defer func(f *file) {
		if err != nil {
			f.close()
		}
	}(f)
	if f.lock, err = os.OpenFile(cfg.File+".lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("usage.file: %w", err)
	}
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("usage.file: another process writes to %s; give each gateway a file of its own", cfg.File)
	}
	full, err := f.full()
	if err != nil {
		return nil, fmt.Errorf("usage.file: %w", err)
	}
	if len(full) > 0 {
		f.last = seqOf(full[len(full)-1])
	}
	if f.open, err = os.OpenFile(cfg.File, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("usage.file: %w", err)
	}
	return f, f.resume()
}

// lineBegin is what every line begins with.
const lineBegin = `{"seq":`

// tailMax bounds how far from the end the last whole line is looked for. A line has
// less than 4 KiB.
const tailMax = 64 << 10

// resume finds the last whole line and cuts off what follows it.
func (f *file) resume() error {
	info, err := f.open.Stat()
	if err != nil {
		return fmt.Errorf("usage.file: %w", err)
	}
	tail := make([]byte, min(info.Size(), tailMax))
	if _, err := f.open.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("usage.file: %w", err)
	}
	whole := bytes.LastIndexByte(tail, '\n') + 1
	var last Line
	rest, foreign := tail[whole:], false
	if whole > 0 {
		line := tail[bytes.LastIndexByte(tail[:whole-1], '\n')+1 : whole]
		foreign = json.Unmarshal(line, &last) != nil || last.Seq == 0
	}
	if foreign || whole == 0 && int64(len(tail)) < info.Size() || !bytes.HasPrefix(rest, []byte(lineBegin[:min(len(rest), len(lineBegin))])) {
		return fmt.Errorf("usage.file: %s does not end with a line of Forebay's; move the file away, or name another", f.cfg.File)
	}
	f.last = max(f.last, last.Seq)
	f.size = info.Size() - int64(len(tail)-whole)
	if cut := info.Size() - f.size; cut > 0 {
		f.log.Warn("usage: the last line was cut by a crash, and is removed", "file", f.cfg.File, "bytes", cut)
	}
	return f.rewind()
}

// rewind cuts off what follows the last whole line.
func (f *file) rewind() error {
	if err := f.open.Truncate(f.size); err != nil {
		return err
	}
	_, err := f.open.Seek(f.size, io.SeekStart)
	f.torn = err != nil
	return err
}

// full are the names of the full files, oldest first.
func (f *file) full() (names []string, err error) {
	folder, base := filepath.Dir(f.cfg.File), filepath.Base(f.cfg.File)
	entries, err := os.ReadDir(folder) // sorted by name
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), base+".") && seqOf(e.Name()) > 0 {
			names = append(names, filepath.Join(folder, e.Name()))
		}
	}
	return names, err
}

// seqOf is the number in the name of a full file, 0 for other names.
func seqOf(name string) uint64 {
	digits := name[strings.LastIndexByte(name, '.')+1:]
	if len(digits) != seqDigits {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// room is how many bytes fit into the file; with none, the next line begins a new one.
func (f *file) room() int { return f.cfg.FileBytesMax - int(f.size) }

// write appends whole lines, of which the last has the number last. After an error
// none of them is there, or they are cut off before the next.
func (f *file) write(lines []byte, last uint64) error {
	if f.torn {
		if err := f.rewind(); err != nil {
			return err
		}
	}
	if f.size > 0 && f.size+int64(len(lines)) > int64(f.cfg.FileBytesMax) {
		if err := f.rotate(); err != nil {
			return err
		}
	}
	if _, err := f.open.Write(lines); err != nil {
		f.torn = true
		return errors.Join(err, f.rewind())
	}
	f.size += int64(len(lines))
	f.last, f.dirty = last, true
	return nil
}

// sync makes the lines survive a crash of the machine.
func (f *file) sync() error {
	if !f.dirty {
		return nil
	}
	f.dirty = false
	return f.open.Sync()
}

// rotate gives the full file its name, and begins a new one.
func (f *file) rotate() error {
	if f.cfg.Sync != "never" {
		if err := f.sync(); err != nil {
			return err
		}
	}
	next, err := os.OpenFile(f.cfg.File+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := os.Rename(f.cfg.File, fmt.Sprintf("%s.%0*d", f.cfg.File, seqDigits, f.last)); err != nil && !errors.Is(err, os.ErrNotExist) { // an earlier try may have renamed it
		return errors.Join(err, next.Close())
	}
	if err := os.Rename(f.cfg.File+".new", f.cfg.File); err != nil {
		return errors.Join(err, next.Close())
	}
	err = f.open.Close()
	f.open, f.size, f.dirty = next, 0, false
	if f.cfg.Sync != "never" {
		err = errors.Join(err, syncFolder(f.cfg.File))
	}
	f.prune()
	return err
}

// syncFolder makes the new names survive a crash of the machine.
func syncFolder(name string) error {
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// prune removes the oldest full files beyond files_max.
func (f *file) prune() {
	names, err := f.full()
	if err != nil {
		f.log.Error("usage: cannot read the folder of full files", "error", err)
		return
	}
	for len(names) > f.cfg.FilesMax {
		if err := os.Remove(names[0]); err != nil {
			f.log.Error("usage: cannot remove a full file", "file", names[0], "error", err)
			return
		}
		f.log.Warn("usage: the oldest full file was removed; collect them sooner, or raise usage.files_max", "file", names[0])
		f.removed++
		names = names[1:]
	}
}

// close releases the file.
func (f *file) close() {
	if f.open != nil {
		f.open.Close()
	}
	if f.lock != nil {
		f.lock.Close()
	}
}
