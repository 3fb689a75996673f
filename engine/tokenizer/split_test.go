package tokenizer

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var piecesFile = flag.String("pieces", "testdata/pieces.jsonl", "reference pieces: JSON lines with splitter or pattern, and pieces")

// splittersByName are those that no pattern of tokenizer.json names.
var splittersByName = map[string]*component{
	"digits": {Type: "Digits", IndividualDigits: true},
	"punctC": {Type: "Punctuation", Behavior: "Contiguous"},
	"punctI": {Type: "Punctuation", Behavior: "Isolated"},
}

// TestSplittersEqualReference has random texts and the pieces that the tokenizers
// library cuts them into, for each pattern.
func TestSplittersEqualReference(t *testing.T) {
	text, err := os.ReadFile(*piecesFile)
	if err != nil {
		t.Fatal(err)
	}
	cases, bad := map[string]int{}, map[string]int{}
	for line := range bytes.Lines(text) {
		var c struct {
			Splitter, Pattern string
			Pieces            []string
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		split, ok := patterns[c.Pattern]
		if !ok {
			p := &pipeline{}
			if err := p.preTokenizer(splittersByName[c.Splitter]); err != nil {
				t.Fatal(err)
			}
			split = p.pre.splitters[0]
		}
		cases[c.Splitter]++
		var got []string
		for rest := strings.Join(c.Pieces, ""); rest != ""; {
			n := split(rest)
			got = append(got, rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(got, c.Pieces) {
			if bad[c.Splitter]++; bad[c.Splitter] <= 3 {
				t.Errorf("%s:\ngot  %q\nwant %q", c.Splitter, got, c.Pieces)
			}
		}
	}
	for name, n := range cases {
		if bad[name] > 0 {
			t.Errorf("%s: %d of %d differ", name, bad[name], n)
		}
	}
	if len(cases) < 20 {
		t.Errorf("only %d splitters have reference pieces", len(cases))
	}
}
