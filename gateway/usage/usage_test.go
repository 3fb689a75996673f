package usage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/gateway/telemetry"
)

// opened is a Writer of a test, with its log.
func opened(t *testing.T, cfg Config) (*Writer, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	w, err := Open(cfg, slog.New(slog.NewTextHandler(log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, log
}

func ran(id string) *telemetry.Record {
	return &telemetry.Record{ID: id, Tenant: "acme", Key: "ci", Model: "m", Route: "completions", Class: "batch", Dispatched: 1, Outcome: telemetry.OK,
		PromptTokens: 24, CachedTokens: 16, ComputedTokens: 8, CompletionTokens: 3, Cost: 0.25}
}

// lines reads all lines of a file and the full ones beside it, oldest first.
func lines(t *testing.T, name string) (all []Line) {
	t.Helper()
	names, err := filepath.Glob(name + ".0*")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range append(names, name) {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var l Line
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v in %q", name, err, s.Text())
			}
			all = append(all, l)
		}
	}
	return all
}

// numbered checks that lines count up by one from 1 and that no id comes twice.
func numbered(t *testing.T, all []Line, want int) {
	t.Helper()
	ids := map[string]bool{}
	for i, l := range all {
		ids[l.ID] = true
		if l.Seq != uint64(i+1) {
			t.Fatalf("line %d has the number %d", i+1, l.Seq)
		}
	}
	if len(all) != want || len(ids) != want {
		t.Errorf("%d lines of %d requests, want %d", len(all), len(ids), want)
	}
}

// TestEachRequestHasOneLine writes from many goroutines, over full files and restarts.
func TestEachRequestHasOneLine(t *testing.T) {
	for _, sync := range []string{"interval", "line", "never"} {
		cfg := Config{File: filepath.Join(t.TempDir(), "usage.jsonl"), FileBytesMax: 4 << 10, Sync: sync, SyncInterval: 10 * time.Millisecond}
		const starts, each = 3, 120
		for start := range starts {
			w, _ := opened(t, cfg)
			add(w, start, each)
			w.Close()
			if c := w.Counts(); c != (telemetry.UsageCounts{Written: each}) {
				t.Errorf("%s: counted %+v", sync, c)
			}
		}
		all := lines(t, cfg.File)
		numbered(t, all, starts*each)
		want := Line{Seq: 1, ID: all[0].ID, Ended: all[0].Ended, Tenant: "acme", Key: "ci", Model: "m", Class: "batch", Route: "completions", Outcome: "ok", PromptTokens: 24, CachedTokens: 16, ComputedTokens: 8, CompletionTokens: 3, Charged: true, Cost: 0.25}
		if all[0] != want || time.Since(all[0].Ended) > time.Minute {
			t.Errorf("line %+v, want %+v", all[0], want)
		}
		full, _ := filepath.Glob(cfg.File + ".0*")
		for _, name := range full {
			if info, err := os.Stat(name); err != nil || info.Size() > int64(cfg.FileBytesMax) || info.Size() < int64(cfg.FileBytesMax)/2 {
				t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
			}
		}
		if len(full) < 10 {
			t.Errorf("%d full files", len(full))
		}
	}
}

func add(w *Writer, start, each int) {
	var all sync.WaitGroup
	for i := range each {
		all.Go(func() { w.Add(ran(fmt.Sprint(start, "-", i))) })
	}
	all.Wait()
	w.Add(&telemetry.Record{ID: "refused", Outcome: telemetry.QueueFull}) // it never ran
}

// TestACutLineIsRemoved: a crash may leave half a line; the next start goes on before it.
func TestACutLineIsRemoved(t *testing.T) {
	cfg := Config{File: filepath.Join(t.TempDir(), "usage.jsonl")}
	w, _ := opened(t, cfg)
	add(w, 0, 5)
	w.Close()
	text, _ := os.ReadFile(cfg.File)
	for _, cut := range []int{1, 7, 40} {
		if err := os.WriteFile(cfg.File, append(slices.Clone(text), text[:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		w, log := opened(t, cfg)
		w.Add(ran("after"))
		w.Close()
		numbered(t, lines(t, cfg.File), 6)
		if !strings.Contains(log.String(), fmt.Sprintf("bytes=%d", cut)) {
			t.Errorf("log %s", log)
		}
	}
}

// TestAFileOfOthersIsNotTouched: neither one that is no usage file, nor one that another
// process writes.
func TestAFileOfOthersIsNotTouched(t *testing.T) {
	for name, text := range map[string]string{
		"text": "hello\n", "no end of line": "hello", "json": "{\"a\":1}\n", "lines and rest": "{\"seq\":1}\nrest", "long": strings.Repeat("x", tailMax+1),
	} {
		cfg := Config{File: filepath.Join(t.TempDir(), "usage.jsonl")}
		if err := os.WriteFile(cfg.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(cfg, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "usage.file") {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadFile(cfg.File); string(left) != text {
			t.Errorf("%s: the file has %q", name, left)
		}
	}
	cfg := Config{File: filepath.Join(t.TempDir(), "usage.jsonl")}
	opened(t, cfg)
	if _, err := Open(cfg, slog.New(slog.DiscardHandler), nil); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second writer: %v", err)
	}
	if w, err := Open(Config{}, nil, nil); w != nil || err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// TestTheOldestFullFilesAreRemoved: no more than files_max are kept, and what goes is
// told.
func TestTheOldestFullFilesAreRemoved(t *testing.T) {
	cfg := Config{File: filepath.Join(t.TempDir(), "usage.jsonl"), FileBytesMax: 4 << 10, FilesMax: 2}
	w, log := opened(t, cfg)
	add(w, 0, 120)
	w.Close()
	full, _ := filepath.Glob(cfg.File + ".0*")
	all := lines(t, cfg.File)
	if c := w.Counts(); len(full) != 2 || c.FilesRemoved < 5 || strings.Count(log.String(), "was removed") != int(c.FilesRemoved) {
		t.Errorf("%d full files, %+v, log %s", len(full), c, log)
	}
	if last := all[len(all)-1].Seq; last != 120 || all[0].Seq != last-uint64(len(all))+1 {
		t.Errorf("lines %d to %d, in all %d", all[0].Seq, last, len(all))
	}
}

// broken is a Writer whose disk takes nothing until mend is called.
func broken(t *testing.T, cfg Config) (w *Writer, log *bytes.Buffer, mend func()) {
	t.Helper()
	log = &bytes.Buffer{}
	w, err := open(cfg, slog.New(slog.NewTextHandler(log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	whole := w.file.open
	if w.file.open, err = os.Open(cfg.File); err != nil { // for reading alone
		t.Fatal(err)
	}
	return w, log, func() { w.file.open.Close(); w.file.open = whole }
}

// TestLinesWaitForTheDisk: a disk that fails for a while loses no line up to queue_max;
// those beyond leave their numbers out.
func TestLinesWaitForTheDisk(t *testing.T) {
	cfg := Config{File: filepath.Join(t.TempDir(), "usage.jsonl"), QueueMax: 16}
	w, log, mend := broken(t, cfg)
	for i := range 20 {
		w.Add(ran(fmt.Sprint(i)))
	}
	if first, second := w.writeAll(), w.writeAll(); !first || !second {
		t.Error("a broken disk did not fail")
	}
	if c := w.Counts(); c != (telemetry.UsageCounts{Lost: 4, Errors: 2, Waiting: 16}) || !strings.Contains(log.String(), "cannot write") && !strings.Contains(log.String(), "lines are lost") {
		t.Errorf("counted %+v, log %s", c, log)
	}
	mend()
	go w.run()
	w.Add(ran("after"))
	w.Close()
	all := lines(t, cfg.File)
	if len(all) < 16 || all[15].Seq != 16 || w.Counts().Written != uint64(len(all)) {
		t.Fatalf("%d lines, counted %+v", len(all), w.Counts())
	}
	if last := all[len(all)-1]; len(all) == 17 && last.Seq != 21 {
		t.Errorf("the line after the loss has the number %d", last.Seq)
	}
}

// TestAStopDoesNotWaitForABrokenDisk: Close gives up after flush_limit and says so.
func TestAStopDoesNotWaitForABrokenDisk(t *testing.T) {
	w, log, _ := broken(t, Config{File: filepath.Join(t.TempDir(), "usage.jsonl"), FlushLimit: 50 * time.Millisecond})
	go w.run()
	w.Add(ran("a"))
	w.Close()
	if c := w.Counts(); c.Lost != 1 || c.Waiting != 0 || !strings.Contains(log.String(), "lost=1") {
		t.Errorf("counted %+v, log %s", c, log)
	}
}
