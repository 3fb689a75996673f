package capture

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/gateway/spans"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file anew")

// TestGoldenTree shows the spans of a streamed request as a person would draw
// them, in testdata/tree.txt.
func TestGoldenTree(t *testing.T) {
	r, steps := streamed()
	var out strings.Builder
	for _, tree := range keptOf(t, r, steps[4:6]).trees(spans.Names141)[:2] { // the other steps look alike
		fmt.Fprintf(&out, "trace %x, flags %d, state %q\n", tree.TraceID, tree.Flags, tree.State)
		depth := map[[8]byte]int{}
		for _, s := range tree.Spans {
			depth[s.ID] = depth[s.Parent] + 1
			draw(&out, &s, strings.Repeat("  ", depth[s.ID]))
		}
	}
	const file = "testdata/tree.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("the tree is another (-rewrite takes it):\n%s", diff)
	}
}

func draw(out *strings.Builder, s *spans.Span, indent string) {
	since := func(instant int64) float64 { return exactMS(instant - start) }
	fmt.Fprintf(out, "%s%s %q, %g to %g ms\n", indent, [...]string{"internal", "server", "client"}[s.Kind], s.Name, since(s.Begin), since(s.End))
	for _, a := range s.Attributes {
		fmt.Fprintf(out, "%s    %s = %v\n", indent, a.Key, a.Value())
	}
	for _, e := range s.Events {
		fmt.Fprintf(out, "%s    event %s at %g ms %v\n", indent, e.Name, since(e.At), e.Attributes)
	}
	for _, l := range s.Links {
		fmt.Fprintf(out, "%s    link to %x of trace %x %v\n", indent, l.SpanID, l.TraceID, l.Attributes)
	}
}
