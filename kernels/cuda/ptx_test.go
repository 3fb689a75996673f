//go:build cuda

package cuda

import (
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPTXIsOfTheSources: kernels.ptx.gz names the sources that it was compiled from.
func TestPTXIsOfTheSources(t *testing.T) {
	script, err := os.ReadFile("ptx.py")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`SOURCES = \[(.*)\]`).FindSubmatch(script)
	if list == nil {
		t.Fatal("ptx.py lists no sources")
	}
	h := sha256.New()
	for name := range strings.SplitSeq(string(list[1]), ", ") {
		source, err := os.ReadFile(strings.Trim(name, `"`))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(source)
	}
	ptx, err := PTX()
	if err != nil {
		t.Fatal(err)
	}
	if line, _, _ := strings.Cut(ptx, "\n"); line != fmt.Sprintf(sourcesMark+"%x", h.Sum(nil)) {
		t.Errorf("kernels.ptx.gz begins with %q: it was compiled from other sources; run kernels/cuda/ptx.py", line)
	}
}
