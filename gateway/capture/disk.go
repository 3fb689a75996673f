package capture

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// disk appends kept requests to files of bounded size, one JSON object on each
// line, and removes the oldest files. A reader skips a line that a crash cut, and
// each process begins a new file. It has one writer.
type disk struct {
	folder               string
	bytesMax, segmentMax int64
	ageMax               time.Duration
	segments             []segment // oldest first; the last one is open
	file                 *os.File  // nil before the first write
	next                 uint64
	bytes                atomic.Int64
	malformed            uint64 // lines, set by read
}

type segment struct {
	name  string
	bytes int64
	at    time.Time // of its last write
}

const (
	segmentPrefix = "requests-"
	segmentSuffix = ".jsonl"
	// lineBytesMax bounds a line that is read. No request comes near it.
	lineBytesMax = 4 << 20
)

// line is a kept request on disk: its view without steps, and the exact facts.
// Numbering is that of the closed lists whose numbers stand in Record.
type line struct {
	*View
	Numbering string            `json:"numbering,omitempty"`
	Record    *telemetry.Record `json:"record,omitempty"`
	Exact     []step            `json:"exact_steps,omitempty"`
	Lost      []wire.LostTime   `json:"lost,omitempty"`
}

// numbering changes if a number of one of the lists gets another meaning.
var numbering = func() string {
	h := fnv.New32a()
	for o := range telemetry.OutcomeCount {
		fmt.Fprintln(h, o)
	}
	for p := range wire.PartCount {
		fmt.Fprintln(h, p)
	}
	for c := range wire.LostCauseCount {
		fmt.Fprintln(h, c)
	}
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}()

// lineOf is k on disk.
func lineOf(k *kept) line {
	l := line{k.view, numbering, k.record, k.steps, k.lost}
	if l.Record != nil && l.Record.ErrorText != "" { // it is for the log alone
		record := *l.Record
		record.ErrorText = ""
		l.Record = &record
	}
	return l
}

// kept is the request of the line, or nil if it has none.
func (l *line) kept() *kept {
	switch {
	case l.View == nil || l.ID == "" || l.Arrived.IsZero():
		return nil
	case l.Record == nil:
		return &kept{view: l.View}
	case l.Numbering != numbering: // its steps are right, and nothing but its arrival is needed for them
		l.Record, l.Lost = &telemetry.Record{Arrived: l.Record.Arrived}, nil
	}
	return &kept{view: l.View, record: l.Record, end: l.Record.Finished, steps: l.Exact, lost: l.Lost}
}

// openDisk finds the segments in the folder.
func openDisk(cfg *Config) (*disk, error) {
	d := &disk{folder: cfg.DiskFolder, bytesMax: cfg.DiskBytesMax, segmentMax: min(cfg.DiskSegmentBytesMax, cfg.DiskBytesMax/2), ageMax: cfg.DiskAgeMax}
	if err := os.MkdirAll(d.folder, 0o700); err != nil {
		return nil, fmt.Errorf("capture.disk_folder: %w", err)
	}
	entries, err := os.ReadDir(d.folder) // sorted by name and therefore by age
	if err != nil {
		return nil, fmt.Errorf("capture.disk_folder: %w", err)
	}
	for _, e := range entries {
		number, ok := segmentNumber(e.Name())
		info, err := e.Info()
		if !ok || err != nil || !info.Mode().IsRegular() {
			continue // not a segment
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

// write appends k.
func (d *disk) write(k *kept) error {
	text, err := json.Marshal(lineOf(k))
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if d.file == nil || d.segments[len(d.segments)-1].bytes+int64(len(text)) > d.segmentMax {
		if err := d.begin(); err != nil {
			return err
		}
	}
	if err := d.prune(int64(len(text))); err != nil {
		return err
	}
	n, err := d.file.Write(text)
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
		d.next++ // another process writes here
	}
	if err != nil {
		return err
	}
	d.next++
	d.file, d.segments = file, append(d.segments, segment{name: name, at: time.Now()})
	return nil
}

// prune removes the oldest segments until room more bytes fit, and all that are
// too old. The open one stays.
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
		_ = d.file.Close() // write has returned its error
		d.file = nil
	}
}

// read calls each with the requests of all segments, oldest first.
func (d *disk) read(each func(*kept)) error {
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

// readSegment calls each with the requests of a segment. Lines without a request
// and lines that are too long are skipped and counted.
func readSegment(from io.Reader, each func(*kept)) (malformed uint64, err error) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		text, err := readLine(lines)
		if len(text) > 0 {
			var l line
			if broken := json.Unmarshal(text, &l); broken != nil || l.kept() == nil {
				malformed++
			} else {
				each(l.kept())
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

// readLine returns a line without its end, and nothing of a line that is too long.
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
		s.log.Warn("some kept requests of earlier runs could not be read", "folder", s.cfg.DiskFolder, "error", err)
	}
	if n := s.disk.malformed; n > 0 {
		s.log.Warn("some lines of kept requests are malformed and were skipped", "folder", s.cfg.DiskFolder, "lines", n)
	}
}
