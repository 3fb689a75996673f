package cache

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts runs the files of testdata: a pool, commands, and their answers.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		var x *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "pool":
				c := Config{PageTokens: 4}
				d.ScanArgs(t, "pages", &c.Pages)
				if d.HasArg("hash-bits") {
					d.ScanArgs(t, "hash-bits", &c.hashBits)
				}
				var err error
				if x, err = newScript(c); err != nil {
					return err.Error()
				}
				return ""
			case "run":
				var out strings.Builder
				for line := range strings.Lines(d.Input) {
					line = strings.TrimSpace(line)
					answer, err := x.run(line)
					if err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					if answer != "" {
						out.WriteString(line + ": " + answer + "\n")
					}
				}
				return out.String()
			}
			t.Fatalf("no command %s", d.Cmd)
			return ""
		})
	})
}

// TestPoolBehavesAsItsTwin runs random operations on small pools and on their twins.
// A failure is printed as a script for testdata.
//
// Case D15.
func TestPoolBehavesAsItsTwin(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 15))
		c := Config{Pages: 1 + r.IntN(20), PageTokens: 1 + r.IntN(5), hashBits: r.IntN(2) * 2, ChangesMax: r.IntN(3) * 4}
		x, err := newScript(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 150 {
			if err := x.operate(r.IntN); err != nil {
				t.Fatalf("seed %d, %+v: %v\nrun\n%s\n----", seed, c, err, strings.Join(x.log, "\n"))
			}
		}
	}
}

func FuzzPool(f *testing.F) {
	f.Add([]byte("\x08\x03\x00 some bytes that choose operations and their operands"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		ops = ops[:min(len(ops), 1000)]
		next := func(n int) int {
			if len(ops) == 0 {
				return 0
			}
			b := ops[0]
			ops = ops[1:]
			return int(b) % n
		}
		c := Config{Pages: 1 + next(20), PageTokens: 1 + next(5), hashBits: next(2) * 2, ChangesMax: len(ops) % 3 * 4}
		x, err := newScript(c)
		if err != nil {
			t.Fatal(err)
		}
		for len(ops) > 0 {
			if err := x.operate(next); err != nil {
				t.Fatalf("%+v: %v\nrun\n%s\n----", c, err, strings.Join(x.log, "\n"))
			}
		}
	})
}
