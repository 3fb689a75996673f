package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func connectionCounter(n *atomic.Int32) func(net.Conn, http.ConnState) {
	return func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			n.Add(1)
		}
	}
}

// TestRun measures the demo model for a second, and checks what must be true
// however fast the machine is.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds forebay")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "forebay")
	if out, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	numbers, record := filepath.Join(dir, "numbers.json"), filepath.Join(dir, "record")
	o, err := parseOptions([]string{"--binary", binary, "--factors", "5", "--runs", "1", "--seconds", "1", "--capacity-seconds", "1", "--json", numbers, "--record", record})
	if err != nil {
		t.Fatal(err)
	}
	o.progress = io.Discard
	var out bytes.Buffer
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\n| forebay | 5 × |") || !strings.Contains(out.String(), "Capacity of forebay") {
		t.Errorf("printed:\n%s", out.String())
	}
	text, err := os.ReadFile(numbers)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil || len(r.Runs) != 1 {
		t.Fatal(err, r)
	}
	y := r.Runs[0]
	if y.Offered == 0 || y.Offered != y.Served+y.Refused+y.Revoked+y.Failed+y.Unfinished {
		t.Errorf("the endings do not sum to the requests: %+v", y)
	}
	if y.Unlogged != 0 {
		t.Errorf("%d of %d requests have no record", y.Unlogged, y.Offered)
	}
	checkRecord(t, filepath.Join(record, "forebay-uniform-5x-run1.jsonl"), y)
}

// checkRecord compares a recorded run with its tally.
func checkRecord(t *testing.T, name string, y *tally) {
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts, last := map[string]int{}, 0.0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r line
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		counts[r.Outcome]++
		if r.Timestamp < last || r.Input < promptWords || r.Asked != answerTokens || r.Total == 0 {
			t.Fatalf("line: %s", lines.Bytes())
		}
		if last = r.Timestamp; r.Outcome == served.String() && (r.Goal < milliseconds(goalDefault) || r.Accepted == 0 || r.Output != answerTokens) {
			t.Fatalf("line of an answer: %s", lines.Bytes())
		}
	}
	if counts["ok"] != y.Served || counts["refused"] != y.Refused || counts["revoked"] != y.Revoked {
		t.Errorf("the record has %v, the tally %+v", counts, y)
	}
}
