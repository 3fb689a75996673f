package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// encoded are some instructions as the architecture's manual encodes them.
var encoded = map[string]uint32{
	"fmla v3.4s, v20.4s, v17.s[0]": 0x4f911283,
	"fmla v3.4s, v20.4s, v17.s[3]": 0x4fb11a83,
	"fmls v1.4s, v2.4s, v31.4s":    0x4ebfcc41,
	"fcvtl2 v21.4s, v20.8h":        0x4e217a95,
	"sxtl2 v22.8h, v20.16b":        0x4f08a696,
	"shll2 v21.4s, v20.8h, #16":    0x6e613a95,
	"sshr v17.4s, v16.4s, #1":      0x4f3f0611,
}

// words are the distinct words of the generated file by the text beside them.
func words(t *testing.T) map[string]uint32 {
	text, _ := generate()
	all := map[string]uint32{}
	for _, m := range regexp.MustCompile(`(?m)^\tWORD \$0x([0-9a-f]{8}) // (.*)$`).FindAllStringSubmatch(text, -1) {
		code, err := strconv.ParseUint(m[1], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := all[m[2]]; ok && was != uint32(code) {
			t.Fatalf("%s is %08x and %08x", m[2], was, code)
		}
		all[m[2]] = uint32(code)
	}
	if len(all) == 0 || len(all) > strings.Count(text, "WORD") {
		t.Fatalf("%d distinct words", len(all))
	}
	return all
}

func TestKnownEncodings(t *testing.T) {
	a := &asm{}
	a.fmlaLane(3, 20, 17, 0)
	a.fmlaLane(3, 20, 17, 3)
	a.three("fmls", 1, 2, 31)
	a.two("fcvtl2", 21, 20)
	a.two("sxtl2.8h", 22, 20)
	a.shll16(21, 20, true)
	a.sshr(17, 16, 1)
	if got := strings.Count(a.text.String(), "\n"); got != len(encoded) {
		t.Fatalf("%d instructions, want %d", got, len(encoded))
	}
	for text, code := range encoded {
		if line := fmt.Sprintf("\tWORD $0x%08x // %s\n", code, text); !strings.Contains(a.text.String(), line) {
			t.Errorf("no %q in:\n%s", line, a.text.String())
		}
	}
}

// TestWordsAreTheirText gives every instruction that is written as a word to the
// GNU assembler, which may use no extension of the architecture.
func TestWordsAreTheirText(t *testing.T) {
	if _, err := exec.LookPath("aarch64-linux-gnu-as"); err != nil {
		if os.Getenv("FOREBAY_TEST_REQUIRE") != "" {
			t.Fatalf("binutils-aarch64-linux-gnu is missing: %v", err)
		}
		t.Skipf("no second assembler, encodings not compared: %v", err)
	}
	var texts []string
	all := words(t)
	for text := range all {
		texts = append(texts, text)
	}
	if at := firstDifference(t, texts, all); at >= 0 {
		t.Errorf("%s is not %08x", texts[at], all[texts[at]])
	}
	wrong := texts[len(texts)/2]
	all[wrong] ^= 1
	if at := firstDifference(t, texts, all); at != len(texts)/2 {
		t.Errorf("a wrong word for %s is found at %d of %d", wrong, at, len(texts))
	}
}

// firstDifference assembles the texts and finds the first whose word is another, or -1.
func firstDifference(t *testing.T, texts []string, want map[string]uint32) int {
	t.Helper()
	object, binaryFile := filepath.Join(t.TempDir(), "o"), filepath.Join(t.TempDir(), "b")
	as := exec.Command("aarch64-linux-gnu-as", "-march=armv8-a", "-o", object, "-")
	as.Stdin = strings.NewReader(strings.Join(texts, "\n") + "\n")
	for _, c := range []*exec.Cmd{as, exec.Command("aarch64-linux-gnu-objcopy", "-O", "binary", "-j", ".text", object, binaryFile)} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	code, err := os.ReadFile(binaryFile)
	if err != nil || len(code) != 4*len(texts) {
		t.Fatalf("%d bytes for %d instructions, %v", len(code), len(texts), err)
	}
	for i, text := range texts {
		if binary.LittleEndian.Uint32(code[4*i:]) != want[text] {
			return i
		}
	}
	return -1
}
