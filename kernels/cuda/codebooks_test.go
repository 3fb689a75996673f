package cuda

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	codes "github.com/forebay-io/forebay/kernels/ref"
)

var rewrite = flag.Bool("rewrite", false, "write codebooks.h")

// TestCodebooks: codebooks.h has the codes of package ref, each number as its place among those that occur.
func TestCodebooks(t *testing.T) {
	const file = "codebooks.h"
	var want bytes.Buffer
	want.WriteString("/* Made by: go test ./kernels/cuda -run TestCodebooks -rewrite\n * What the codes of the types IQ1, IQ2 and IQ3 stand for: of eight numbers two bits each, of four three. */\n")
	for _, book := range []struct {
		name    string
		eights  [][8]int8
		fours   [][4]int8
		numbers []int8
	}{
		{"iq2xxs", codes.Codes8(codes.IQ2_XXS), nil, []int8{8, 25, 43}}, {"iq2xs", codes.Codes8(codes.IQ2_XS), nil, []int8{8, 25, 43}},
		{"iq2s", codes.Codes8(codes.IQ2_S), nil, []int8{8, 25, 43}}, {"iq1", codes.Codes8(codes.IQ1_S), nil, []int8{-1, 0, 1}},
		{"iq3xxs", nil, codes.Codes4(codes.IQ3_XXS), []int8{4, 12, 20, 28, 36, 44, 52, 62}}, {"iq3s", nil, codes.Codes4(codes.IQ3_S), []int8{1, 3, 5, 7, 9, 11, 13, 15}},
	} {
		var all []uint16
		pack := func(code []int8, bits int) {
			packed := 0
			for i, x := range code {
				packed |= slices.Index(book.numbers, x) << (bits * i)
			}
			all = append(all, uint16(packed))
		}
		for i := range book.eights {
			pack(book.eights[i][:], 2)
		}
		for i := range book.fours {
			pack(book.fours[i][:], 3)
		}
		fmt.Fprintf(&want, "TABLE(%s_codes) = {", book.name)
		for i, code := range all {
			if i%20 == 0 {
				want.WriteString("\n\t")
			} else {
				want.WriteString(" ")
			}
			fmt.Fprintf(&want, "%d,", code)
		}
		want.WriteString("\n};\n")
	}
	if *rewrite {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what package ref says; run this test with -rewrite", file)
	}
}
