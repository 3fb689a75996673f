package main

import (
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMain is a paced engine where a fleet starts one.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "--engine") {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestFleets plays a few conversations to small fleets, and checks what is true however
// fast the machine is: all is answered, a prompt that the sibling has is computed there,
// and what was computed is found again.
func TestFleets(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds forebay")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "redis") {
			t.Fatal("redis-server is required and not installed")
		}
		t.Skip("SKIPPED: redis-server is not installed")
	}
	dir := t.TempDir()
	binary, path := filepath.Join(dir, "forebay"), filepath.Join(dir, "trace.gz")
	if out, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := writeTrace(path, 6, 5); err != nil {
		t.Fatal(err)
	}
	o := options{binary: binary, trace: path, replicas: 2, pages: 5000, requests: 30, hops: 2, speed: 50, load: 0.5}
	outcomes, err := o.run(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 3 {
		t.Fatalf("%d fleets", len(outcomes))
	}
	for _, r := range outcomes {
		if r.failed > 0 || r.hits == 0 || r.moved > 0 && r.name != "forebay" {
			t.Errorf("%+v", r)
		}
	}
}

// writeTrace writes conversations of so many turns each, in turns.
func writeTrace(path string, conversations, turns int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	packed := gzip.NewWriter(file)
	for turn := range turns {
		for c := range conversations {
			var blocks []string
			for b := range 4 * (turn + 1) {
				blocks = append(blocks, fmt.Sprint(1000*c+b))
			}
			fmt.Fprintf(packed, `{"timestamp": %d, "input_length": %d, "output_length": 20, "hash_ids": [%s]}`+"\n", 1000*(turn*conversations+c), traceBlock*len(blocks), strings.Join(blocks, ", "))
		}
	}
	return packed.Close()
}
