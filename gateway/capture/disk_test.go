package capture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
)

// failed is a request that the engine failed, so that it is kept.
func failed(i int) *telemetry.Record {
	now := wire.Monotonic()
	return &telemetry.Record{ID: fmt.Sprintf("request-%d", i), Class: "interactive", Tenant: fmt.Sprint("tenant", i), Route: "completions", Outcome: telemetry.EngineError,
		Arrived: now - 1e9, Decoded: now - 9e8, Finished: now, Trace: wire.TraceContext{TraceID: [16]byte{15: byte(i)}, SpanID: [8]byte{1}}}
}

func TestWhatIsOnDiskIsFoundAfterARestart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "kept")
	cfg := Config{DiskFolder: folder, Burst: 1000, KeptMax: 64}
	s, err := New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, steps := slowRecord()
	told(s, r, steps)
	r.Broken = r.Missed(r.Finished)
	s.Offer(r)
	s.Offer(failed(1))
	before, _ := json.Marshal(s.Find("victim"))
	exported := fromArrival(s.Trees("victim", spans.Names141))
	s.Close()

	// A process that was killed leaves half a line; somebody else left others.
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v: %v", err, names)
	}
	file, err := os.OpenFile(names[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, "{}\nnull\n\n%s\n", strings.Repeat("x", lineBytesMax+1))
	file.Write(before[:len(before)/2])
	file.Close()
	os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("not ours"), 0o600)

	s = newStore(t, cfg)
	after, _ := json.Marshal(s.Find("order#7"))
	if !bytes.Equal(before, after) {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	if s.Find("request-1") == nil || len(s.List()) != 2 {
		t.Errorf("%d are there", len(s.List()))
	}
	if n := s.Stats().Malformed; n != 4 {
		t.Errorf("%d lines were malformed, want 4", n)
	}
	s.Offer(failed(2))
	s.flush()
	if names, _ = filepath.Glob(filepath.Join(folder, segmentPrefix+"*")); len(names) != 2 {
		t.Errorf("a cut segment was written on: %v", names)
	}
	if trees := s.Trees("victim", spans.Names141); len(trees) != 3 || !cmp.Equal(fromArrival(trees), exported, cmp.AllowUnexported(spans.Attribute{})) {
		t.Errorf("its spans were\n%+v\nand are\n%+v", exported, trees)
	}
}

// fromArrival moves the trees so that the request arrives at 0.
func fromArrival(trees []spans.Tree) []spans.Tree {
	shift(trees, -trees[0].Spans[0].Begin)
	return trees
}

// TestALineOfAnotherVersion: a request that another version kept has its view and
// its steps, and no spans, because numbers in its record may mean something else.
func TestALineOfAnotherVersion(t *testing.T) {
	s := newStore(t, Config{})
	r, steps := slowRecord()
	told(s, r, steps)
	k := s.build(r, reasonForced, false, r.Finished)
	want, _ := json.Marshal(k.shown())
	now, _ := json.Marshal(lineOf(k))
	for name, c := range map[string]struct {
		text  []byte
		trees int
	}{
		"this version":        {now, 3},
		"other numbers":       {bytes.Replace(now, []byte(`"numbering":"`), []byte(`"numbering":"x`), 1), 0},
		"a view and no facts": {want, 0},
	} {
		if _, err := readSegment(bytes.NewReader(c.text), func(k *kept) {
			if got, _ := json.Marshal(k.shown()); !bytes.Equal(got, want) {
				t.Errorf("%s: the view is\n%s\nwant\n%s", name, got, want)
			}
			if n := len(k.trees(spans.Names141)); n != c.trees {
				t.Errorf("%s: %d trees", name, n)
			}
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestDiskStaysWithinItsBytes(t *testing.T) {
	cfg := Config{DiskFolder: t.TempDir(), DiskBytesMax: 1 << 20, DiskSegmentBytesMax: 64 << 10, DiskAgeMax: time.Hour}
	d, err := openDisk(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{view: viewOf(failed(1), reasonFailed)}
	k.view.Sentence = strings.Repeat("a", 9000)
	for i := range 300 {
		k.view.ID = fmt.Sprint(i)
		if err := d.write(k); err != nil {
			t.Fatal(err)
		}
		if d.bytes.Load() > cfg.DiskBytesMax {
			t.Fatalf("%d bytes", d.bytes.Load())
		}
	}
	d.close()
	var total int64
	entries, _ := os.ReadDir(cfg.DiskFolder)
	for _, e := range entries {
		info, _ := e.Info()
		total += info.Size()
		if info.Size() > cfg.DiskSegmentBytesMax {
			t.Errorf("%s has %d bytes", e.Name(), info.Size())
		}
	}
	if total != d.bytes.Load() || total < cfg.DiskBytesMax*8/10 {
		t.Errorf("%d bytes on disk, %d counted", total, d.bytes.Load())
	}
	last := ""
	if err := d.read(func(k *kept) { last = k.view.ID }); err != nil || last != "299" {
		t.Errorf("the last is %q: %v", last, err)
	}
	// A file that is too old goes at the next start.
	old := time.Now().Add(-2 * time.Hour)
	for _, e := range entries {
		os.Chtimes(filepath.Join(cfg.DiskFolder, e.Name()), old, old)
	}
	if d, err = openDisk(&cfg); err != nil || len(d.segments) != 0 || d.bytes.Load() != 0 {
		t.Errorf("%v: %d segments are left", err, len(d.segments))
	}
}

func TestAFolderThatCannotBeSaysSo(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	os.WriteFile(name, nil, 0o600)
	if _, err := New(Config{DiskFolder: filepath.Join(name, "in")}, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "capture.disk_folder: ") {
		t.Errorf("the error is %v", err)
	}
}

func FuzzReadSegment(f *testing.F) {
	line, err := json.Marshal(viewOf(failed(1), reasonFailed))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(line, '\n'))
	s := newStore(f, Config{})
	r, steps := slowRecord()
	told(s, r, steps)
	exact, err := json.Marshal(lineOf(s.build(r, reasonForced, false, r.Finished)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(exact)
	f.Add(bytes.Replace(exact, []byte(`"Dispatched":`), []byte(`"Dispatched":-1`), 1))
	f.Add(line[:len(line)/2])
	f.Add([]byte("{}\n\n\r\nnull\n[1]\n\"\n"))
	f.Add([]byte(`{"id":"a","arrived":"2026-01-01T00:00:00Z","parts":[{"name":"queue","ms":1e308}],"steps":[{"ms":-1}],"trace_id":"zz"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := bytes.Count(data, []byte("\n")) + 1
		views := 0
		malformed, err := readSegment(bytes.NewReader(data), func(k *kept) {
			views++
			k.trees(spans.Names141)
			k.shown().Trace()
		})
		if err != nil || views+int(malformed) > lines {
			t.Errorf("%v: %d views and %d malformed of %d lines", err, views, malformed, lines)
		}
	})
}
