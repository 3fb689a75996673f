package capture

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// disk appends kept requests to files of bounded size, a JSON object a line,
// and removes the oldest files. A line that was cut by a crash is skipped when
// it is read, and the next process begins a new file. It has one writer.
type disk struct {
	folder               string
	bytesMax, segmentMax int64
	ageMax               time.Duration
	segments             []segment // oldest first; the last one is open
	file                 *os.File  // nil before the first write
	next                 uint64
	bytes                atomic.Int64
	malformed            uint64 // set by openDisk and read
}

type segment struct {
	name  string
	bytes int64
	at    time.Time // of its last write
}

const (
	segmentPrefix = "requests-"
	segmentSuffix = ".jsonl"
	// lineBytesMax bounds what is read as one request: far more than any has.
	lineBytesMax = 4 << 20
)

// openDisk finds the segments that are there.
func openDisk(cfg *Config) (*disk, error) {
	d := &disk{folder: cfg.DiskFolder, bytesMax: cfg.DiskBytesMax, segmentMax: min(cfg.DiskSegmentBytesMax, cfg.DiskBytesMax/2), ageMax: cfg.DiskAgeMax}
	if err := os.MkdirAll(d.folder, 0o700); err != nil {
		return nil, fmt.Errorf("capture.disk_folder: %w", err)
	}
	entries, err := os.ReadDir(d.folder) // sorted by name, and so by age
	if err != nil {
		return nil, fmt.Errorf("capture.disk_folder: %w", err)
	}
	for _, e := range entries {
		number, ok := segmentNumber(e.Name())
		info, err := e.Info()
		if !ok || err != nil || !info.Mode().IsRegular() {
			continue // not ours
		}
		d.next = max(d.next, number+1)
		d.segments = append(d.segments, segment{e.Name(), info.Size(), info.ModTime()})
		d.bytes.Add(info.Size())
	}
	return d, d.prune(0)
}

func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	digits, isSegment := strings.CutSuffix(digits, segmentSuffix)
	if !ok || !isSegment || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// write appends v.
func (d *disk) write(v *View) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if d.file == nil || d.segments[len(d.segments)-1].bytes+int64(len(line)) > d.segmentMax {
		if err := d.begin(); err != nil {
			return err
		}
	}
	if err := d.prune(int64(len(line))); err != nil {
		return err
	}
	n, err := d.file.Write(line)
	last := &d.segments[len(d.segments)-1]
	last.bytes, last.at = last.bytes+int64(n), time.Now()
	d.bytes.Add(int64(n))
	return err
}

// begin opens the next segment.
func (d *disk) begin() error {
	d.close()
	name := fmt.Sprintf("%s%020d%s", segmentPrefix, d.next, segmentSuffix)
	file, err := os.OpenFile(filepath.Join(d.folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrExist) {
		d.next++ // of another process that writes here
	}
	if err != nil {
		return err
	}
	d.next++
	d.file, d.segments = file, append(d.segments, segment{name: name, at: time.Now()})
	return nil
}

// prune removes the oldest segments, but the open one, until room more bytes
// fit, and those that are too old.
func (d *disk) prune(room int64) error {
	for len(d.segments) > 0 {
		oldest := d.segments[0]
		if d.file != nil && len(d.segments) == 1 || d.bytes.Load()+room <= d.bytesMax && time.Since(oldest.at) <= d.ageMax {
			return nil
		}
		if err := os.Remove(filepath.Join(d.folder, oldest.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		d.bytes.Add(-oldest.bytes)
		d.segments = slices.Delete(d.segments, 0, 1)
	}
	return nil
}

func (d *disk) close() {
	if d.file != nil {
		_ = d.file.Close() // written already, or reported then
		d.file = nil
	}
}

// read gives the requests of all segments, oldest first.
func (d *disk) read(each func(*View)) error {
	for _, s := range d.segments {
		file, err := os.Open(filepath.Join(d.folder, s.name))
		if err != nil {
			return err
		}
		malformed, err := readSegment(file, each)
		d.malformed += malformed
		_ = file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// readSegment gives each request of a segment. Lines that are none, or too
// long, are skipped and counted.
func readSegment(from io.Reader, each func(*View)) (malformed uint64, err error) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(lines)
		if len(line) > 0 {
			v := new(View)
			if json.Unmarshal(line, v) != nil || v.ID == "" || v.Arrived.IsZero() {
				malformed++
			} else {
				each(v)
			}
		}
		switch {
		case err == io.EOF:
			return malformed, nil
		case errors.Is(err, errLongLine):
			malformed++
		case err != nil:
			return malformed, err
		}
	}
}

var errLongLine = errors.New("the line is too long")

// readLine reads a line without its end, and of one that is too long nothing.
func readLine(from *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := from.ReadSlice('\n')
		if long = long || len(line)+len(part) > lineBytesMax; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && err == nil:
			return nil, errLongLine
		case long:
			return nil, err
		}
		return bytes.TrimRight(line, "\r\n"), err
	}
}

// restore puts what the disk has into memory.
func (s *Store) restore() {
	err := s.disk.read(s.put)
	if err != nil {
		s.log.Warn("kept requests of before could not all be read", "folder", s.cfg.DiskFolder, "error", err)
	}
	if n := s.disk.malformed; n > 0 {
		s.log.Warn("some kept requests of before were cut or are none, and were skipped", "folder", s.cfg.DiskFolder, "lines", n)
	}
}
